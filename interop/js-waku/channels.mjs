// Reliable channels of js-waku (`ReliableChannel` of @waku/sdk), as commands of a light node.
// Payloads are text; options are js-waku's own, with its names and defaults.
import * as ecies from '@waku/message-encryption/ecies'
import * as symmetric from '@waku/message-encryption/symmetric'
import { ReliableChannel, ReliableChannelEvent } from '@waku/sdk'

const bytes = (text) => new Uint8Array(Buffer.from(text))
const text = (data) => Buffer.from(data).toString()
const ofHex = (value) => new Uint8Array(Buffer.from(value, 'hex'))
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// What a channel has told its application.
class Told {
  received = new Map() // payload → { times, sender of the SDS message is not told }
  sent = new Map() // message id → how often
  acknowledged = new Set()
  possibly = new Set()
  errors = []
  waiting = [] // { what, count, resolve }

  constructor (channel) {
    const hear = (name, heard) => channel.addEventListener(name, ({ detail }) => { heard(detail); this.look() })
    hear(ReliableChannelEvent.MessageReceived, ({ payload }) => {
      this.received.set(text(payload), (this.received.get(text(payload)) ?? 0) + 1)
    })
    hear(ReliableChannelEvent.MessageSent, (id) => this.sent.set(id, (this.sent.get(id) ?? 0) + 1))
    hear(ReliableChannelEvent.MessageAcknowledged, (id) => this.acknowledged.add(id))
    hear(ReliableChannelEvent.MessagePossiblyAcknowledged, ({ messageId }) => this.possibly.add(messageId))
    hear(ReliableChannelEvent.SendingMessageIrrecoverableError, (error) => this.errors.push(error))
    hear(ReliableChannelEvent.IrretrievableMessage, ({ messageId }) => this.errors.push(messageId))
  }

  look () {
    this.waiting = this.waiting.filter(({ what, count, resolve }) => {
      if (this[what].size < count) return true
      resolve()
      return false
    })
  }

  async wait (what, count) {
    await new Promise((resolve) => { this.waiting.push({ what, count, resolve }); this.look() })
  }
}

// Version 1 payloads where there are keys, else messages as they are.
function codecs (node, { contentTopic, key, publicKey, privateKey }) {
  const plain = node.createEncoder({ contentTopic })
  const { routingInfo } = plain
  if (key !== undefined) {
    return [
      symmetric.createEncoder({ contentTopic, routingInfo, symKey: ofHex(key) }),
      symmetric.createDecoder(contentTopic, routingInfo, ofHex(key))
    ]
  }
  if (publicKey !== undefined) {
    return [
      ecies.createEncoder({ contentTopic, routingInfo, publicKey: ofHex(publicKey) }),
      ecies.createDecoder(contentTopic, routingInfo, ofHex(privateKey))
    ]
  }
  return [plain, node.createDecoder({ contentTopic })]
}

export function channelCommands (node) {
  const channels = new Map() // channel id → { channel, told }
  const of = (id) => channels.get(id)

  return {
    openChannel: async ({ channel: id, sender, options = {}, ...where }) => {
      const [encoder, decoder] = codecs(node, where)
      const channel = await ReliableChannel.create(node, id, sender, encoder, decoder, { ...options, autoStart: false })
      channels.set(id, { channel, told: new Told(channel) })
      return channel.start()
    },

    // One after the other, each given to the channel when the network has the one before, and `everyMs` has passed.
    channelSend: async ({ channel: id, payloads, everyMs = 0 }) => {
      const { channel, told } = of(id)
      const ids = []
      for (const payload of payloads) {
        const before = told.sent.size
        ids.push(channel.send(bytes(payload)))
        await told.wait('sent', before + 1)
        if (everyMs) await pause(everyMs)
      }
      return ids
    },

    // Until there are so many `received` or `acknowledged` messages.
    channelWait: async ({ channel: id, what, count }) => of(id).told.wait(what, count),

    channelTold: ({ channel: id }) => {
      const { told } = of(id)
      return {
        received: Object.fromEntries(told.received),
        sent: Object.fromEntries(told.sent),
        acknowledged: [...told.acknowledged],
        possibly: [...told.possibly],
        errors: told.errors
      }
    },

    // The log of its SDS, in its order.
    channelLog: ({ channel: id }) => of(id).channel.messageChannel.localHistory.slice(0).map(({ messageId }) => messageId),

    stopChannel: ({ channel: id }) => { of(id).channel.stop() }
  }
}
