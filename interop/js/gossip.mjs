// A js-libp2p peer with the GossipSub of @chainsafe/libp2p-gossipsub on Waku's terms, as js-waku's relay sets it up:
// Waku's protocol id, StrictNoSign, the hash of the data as message id.
import './common/polyfill.mjs'
import { createHash, randomBytes } from 'node:crypto'
import { GossipSub } from '@chainsafe/libp2p-gossipsub'
import { StrictNoSign, StrictSign } from '@libp2p/interface'
import { answerCommands, startOptions } from './common/commands.mjs'
import { hostCommands, introduction, makeHost } from './common/host.mjs'
import { messageHash, wakuMessage } from './common/message.mjs'

const RELAY = '/vac/waku/relay/2.0.0'

function sha256 (data) {
  return createHash('sha256').update(data).digest()
}

class WakuRelay extends GossipSub {
  constructor (components, options) {
    super(components, options)
    this.multicodecs = [RELAY]
  }
}

function relay (components) {
  return new WakuRelay(components, {
    // Only a peer that is to be refused signs (option `sign`).
    globalSignaturePolicy: options.sign ? StrictSign : StrictNoSign,
    msgIdFn: (message) => sha256(message.data),
    allowPublishToZeroTopicPeers: true,
    fallbackToFloodsub: false,
    emitSelf: false,
    // All peers here share one address, which says nothing against them.
    scoreParams: { IPColocationFactorWeight: 0 }
  })
}

const options = startOptions()
const host = await makeHost(options, { relay })
const pubsub = host.services.relay

const received = new Map() // topic → message id in hex → how often it was delivered
let total = 0 // deliveries on all topics
let counting = false // under measurement messages are only counted
let benchmarked = 0 // no two messages are the same
const waiting = [] // { count, resolve }

pubsub.addEventListener('gossipsub:message', ({ detail }) => {
  const { topic, data } = detail.msg
  total += 1
  if (!counting) {
    const id = sha256(data).toString('hex')
    const ids = received.get(topic) ?? new Map()
    received.set(topic, ids.set(id, (ids.get(id) ?? 0) + 1))
  }
  for (let index = waiting.length - 1; index >= 0; index -= 1) {
    if (total >= waiting[index].count) waiting.splice(index, 1)[0].resolve(total)
  }
})

answerCommands({
  ...hostCommands(host),
  subscribe: async ({ topic }) => { pubsub.subscribe(topic) },
  unsubscribe: async ({ topic }) => { pubsub.unsubscribe(topic) },
  // Publish given messages (in hex); the number of peers that each was sent to.
  publish: async ({ topic, messages }) => {
    const sent = []
    for (const message of messages) {
      sent.push((await pubsub.publish(topic, Buffer.from(message, 'hex'))).recipients.length)
    }
    return sent
  },
  // Make and publish `count` messages with payloads of `size` random bytes; their ids.
  publishMany: async ({ topic, count, size }) => {
    const ids = []
    for (let index = 0; index < count; index += 1) {
      const message = wakuMessage(randomBytes(size), '/pywaku/1/interop/proto', BigInt(Date.now()) * 1_000_000n)
      await pubsub.publish(topic, message)
      ids.push(sha256(message).toString('hex'))
      if (index % 100 === 99) await new Promise((resolve) => { setImmediate(resolve) })
    }
    return ids
  },
  // How often each message was delivered on a topic, by id.
  received: async ({ topic }) => Object.fromEntries(received.get(topic) ?? []),
  // Wait until that many messages were delivered since the start, or since counting began.
  waitReceived: async ({ count }) => total >= count
    ? total
    : new Promise((resolve) => { waiting.push({ count, resolve }) }),
  mesh: async ({ topic }) => pubsub.getMeshPeers(topic),
  subscribers: async ({ topic }) => pubsub.getSubscribers(topic).map(String),
  // From now on only count, from zero: what is measured is the relay, not the tests' bookkeeping.
  benchReceive: async () => {
    counting = true
    total = 0
  },
  // Publish as fast as the relay takes messages.
  benchPublish: async ({ topic, count, size }) => {
    const payload = randomBytes(size)
    for (let index = 0; index < count; index += 1) {
      payload.writeUInt32BE(benchmarked++)
      await pubsub.publish(topic, wakuMessage(payload, '/pywaku/1/bench/proto', BigInt(benchmarked)))
      // Let the sockets have their turn now and then, or all of it would wait in memory first.
      if (index % 64 === 63) await new Promise((resolve) => { setImmediate(resolve) })
    }
  },
  // Seconds that `count` message hashes take.
  benchHash: async ({ count, size }) => {
    const payload = randomBytes(size)
    const start = performance.now()
    for (let index = 0; index < count; index += 1) {
      messageHash('/waku/2/rs/42/0', payload, '/pywaku/1/bench/proto', BigInt(index))
    }
    return (performance.now() - start) / 1000
  }
}, introduction(host))
