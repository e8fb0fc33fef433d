// A light node of js-waku, as applications make it: `node waku.mjs '{"bootstrap": ["/ip4/…/ws/p2p/…"], …}'`.
// It speaks WebSocket, noise and mplex, and uses service nodes for everything.
import '../js/common/polyfill.mjs'
import { randomBytes } from 'node:crypto'
import { wakuPeerExchangeDiscovery } from '@waku/discovery'
import { createLightNode, utils, waku } from '@waku/sdk'
import { answerCommands, startOptions } from '../js/common/commands.mjs'
import { channelCommands } from './channels.mjs'

// Options: bootstrap (addresses), cluster, shards (how many the cluster has), peerExchange (dial whom peers name).
const { bootstrap = [], cluster = 42, shards = 8, peerExchange = false } = startOptions()

const node = await createLightNode({
  networkConfig: { clusterId: cluster, numShardsInCluster: shards },
  defaultBootstrap: false,
  bootstrapPeers: bootstrap,
  discovery: { dns: false, peerCache: false, peerExchange },
  libp2p: {
    filterMultiaddrs: false, // or it would dial wss alone
    connectionGater: { denyDialMultiaddr: () => false }, // or it would not dial 127.0.0.1
    hideWebSocketInfo: true // which goes to stdout
  }
})

function connectedPeer (text) {
  const peer = node.libp2p.getPeers().find((one) => one.toString() === text)
  if (peer === undefined) {
    throw new Error(`not connected to ${text}`)
  }
  return peer
}

function hex (bytes) {
  return Buffer.from(bytes).toString('hex')
}

function date (milliseconds) {
  return milliseconds === undefined ? undefined : new Date(milliseconds)
}

const received = new Map() // message hash → how often the application got it
let total = 0
let pushes = 0 // messages that came over filter streams, before js-waku drops the duplicates
const waiting = [] // { count, resolve }
const decoders = new Map() // content topic → what it was subscribed with

let deaf = false // does what is pushed get lost?
const { protocol: filter } = node.filter
const handleIncomingMessage = filter.handleIncomingMessage
filter.handleIncomingMessage = (...push) => {
  pushes += 1
  if (deaf) return
  return handleIncomingMessage(...push)
}

function receive (message) {
  received.set(message.hashStr, (received.get(message.hashStr) ?? 0) + 1)
  total += 1
  for (let index = waiting.length - 1; index >= 0; index -= 1) {
    if (total >= waiting[index].count) waiting.splice(index, 1)[0].resolve(total)
  }
}

answerCommands({
  ...channelCommands(node),
  waitForPeers: async ({ protocols, timeout = 20_000 }) => node.waitForPeers(protocols, timeout),
  dial: async ({ address }) => { await node.dial(address) },
  connected: () => node.isConnected(),
  connections: () => node.libp2p.getConnections().map((connection) => ({
    peer: connection.remotePeer.toString(),
    address: connection.remoteAddr.toString(),
    muxer: connection.multiplexer,
    encryption: connection.encryption,
    opened: connection.timeline.open,
    streams: connection.streams.map((stream) => stream.protocol ?? '')
  })),
  // The connected peers, with what each has said of itself.
  peers: async () => (await node.getConnectedPeers()).map((peer) => {
    const shardInfo = peer.metadata.get('shardInfo')
    return {
      peer: peer.id.toString(),
      protocols: [...peer.protocols].sort(),
      shardInfo: shardInfo === undefined ? null : utils.decodeRelayShard(shardInfo)
    }
  }),
  // Where content topics belong (automatic sharding).
  pubsubTopics: ({ contentTopics }) => contentTopics.map((contentTopic) => node.createEncoder({ contentTopic }).pubsubTopic),
  ping: async ({ peer }) => node.libp2p.services.ping.ping(connectedPeer(peer)),

  // Send `count` messages, `concurrency` at a time, each once: the hashes of those that were acknowledged, how often
  // which error came, and the seconds it took.
  push: async ({ contentTopic, count, concurrency = 1, size = 200, ephemeral = false, legacy = false }) => {
    const encoder = node.createEncoder({ contentTopic, ephemeral })
    const acknowledged = []
    const errors = {}
    let left = count
    const start = performance.now()
    await Promise.all(Array.from({ length: concurrency }, async () => {
      while (left-- > 0) {
        const message = { payload: randomBytes(size), timestamp: new Date() }
        const sent = await encoder.toProtoObj(message)
        const { successes, failures } = await node.lightPush.send(encoder, message, { autoRetry: false, useLegacy: legacy })
        if (successes.length > 0) acknowledged.push(waku.messageHashStr(encoder.pubsubTopic, sent))
        for (const { error } of failures) errors[error] = (errors[error] ?? 0) + 1
      }
    }))
    return { acknowledged, errors, seconds: (performance.now() - start) / 1000 }
  },

  subscribe: async ({ contentTopic }) => {
    decoders.set(contentTopic, node.createDecoder({ contentTopic }))
    return node.filter.subscribe(decoders.get(contentTopic), receive)
  },
  unsubscribe: async ({ contentTopic }) => node.filter.unsubscribe(decoders.get(contentTopic)),
  pingFilter: async ({ peer }) => {
    const { success, failure } = await filter.ping(connectedPeer(peer))
    return success !== null ? null : failure.error
  },
  // What came so far: how often each message, by hash, and the pushes that brought them.
  received: () => ({ messages: Object.fromEntries(received), pushes }),
  waitReceived: async ({ count }) => total >= count
    ? total
    : new Promise((resolve) => { waiting.push({ count, resolve }) }),

  // From now on, lose all that is pushed, or no longer.
  beDeaf: ({ on }) => { deaf = on },

  // The result of a query, page by page: the hashes of the messages.
  query: async ({ contentTopics, forward = true, pageSize, from, to, hashes, maxPages = Infinity }) => {
    const options = {
      paginationForward: forward,
      paginationLimit: pageSize,
      timeStart: date(from),
      timeEnd: date(to),
      messageHashes: hashes?.map((hash) => Buffer.from(hash, 'hex'))
    }
    const pages = []
    const start = performance.now()
    const wanted = contentTopics.map((contentTopic) => node.createDecoder({ contentTopic }))
    for await (const page of node.store.queryGenerator(wanted, options)) {
      pages.push((await Promise.all(page)).map((message) => message === undefined ? null : hex(message.hash)))
      if (pages.length >= maxPages) break
    }
    return { pages, seconds: (performance.now() - start) / 1000 }
  },

  // Whom a peer names when it is asked for `count` peers.
  peerExchange: async ({ peer, count }) => {
    const discovery = wakuPeerExchangeDiscovery()(node.libp2p.components)
    const { peerInfos, error } = await discovery.peerExchange.query({ numPeers: count, peerId: connectedPeer(peer) })
    if (error !== null) {
      throw new Error(error)
    }
    return peerInfos.map(({ ENR: enr }) => ({
      peer: enr.peerInfo?.id.toString() ?? null,
      addresses: enr.peerInfo?.multiaddrs.map(String) ?? [],
      shardInfo: enr.shardInfo ?? null,
      waku: enr.waku2 ?? null
    }))
  },

  stop: async () => node.stop()
}, { peer: node.peerId.toString(), addresses: [] })
