// Participants of SDS channels as js-waku has them (`MessageChannel` of @waku/sds), commanded one step at a time.
// Bytes are base64. The process's own clock is js-waku's clock, and whoever commands it is the link.
import '../js/common/polyfill.mjs'
import { createHash } from 'node:crypto'
import { ContentMessage, isContentMessage, isEphemeralMessage, Message, MessageChannel, MessageChannelEvent } from '@waku/sds'
import { answerCommands } from '../js/common/commands.mjs'

const channels = new Map() // participant → { channel, events }

const bytes = (text) => new Uint8Array(Buffer.from(text, 'base64'))
const text = (data) => Buffer.from(data).toString('base64')

function open (channelId, sender, options) {
  const channel = new MessageChannel(channelId, sender, options)
  const events = []
  for (const name of Object.values(MessageChannelEvent)) {
    channel.addEventListener(name, ({ detail }) => { events.push({ name, detail: plain(detail) }) })
  }
  channels.set(sender, { channel, events })
}

// What of an event's detail goes through JSON: ids, counts, lists of entries.
function plain (detail) {
  if (Array.isArray(detail)) return detail.map(({ messageId }) => messageId)
  if (typeof detail === 'string') return detail
  return { messageId: detail?.messageId, count: detail?.count, error: detail?.error && String(detail.error) }
}

function kind (message) {
  return isContentMessage(message) ? 'content' : isEphemeralMessage(message) ? 'ephemeral' : 'sync'
}

async function receive (channel, data, hint) {
  const message = Message.decode(data)
  if (message === undefined) return null
  channel.pushIncomingMessage(message, hint)
  await channel.processTasks()
  return kind(message)
}

async function send (channel, content, hint) {
  let made
  channel.pushOutgoingMessage(content, async (message) => {
    made = { id: message.messageId, data: message.encode() }
    return { success: true, retrievalHint: hint }
  })
  await channel.processTasks()
  return made
}

// A channel as it is after so many messages of another participant, without the hours that those would take.
function filled (sender, count) {
  const channel = new MessageChannel('bench', sender)
  const start = BigInt(Date.now() - count - 1000)
  const messages = []
  for (let number = 0; number < count; number += 1) {
    const content = Buffer.from(`history ${number}`)
    const id = MessageChannel.getMessageId(content)
    const message = new ContentMessage(id, 'bench', 'history', [], start + BigInt(number), undefined, content)
    message.retrievalHint = createHash('sha256').update(content).digest()
    messages.push(message)
    channel.filter.insert(id)
    channel.timeReceived.set(id, Date.now())
  }
  const size = 10_000 // arguments that a call may have
  for (let first = 0; first < count; first += size) channel.localHistory.push(...messages.slice(first, first + size))
  return channel
}

// The time of the processor that this process has used, in milliseconds.
function cpuMs () {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

function benchContent (number) {
  return new Uint8Array(Buffer.from(`bench ${number} `.padEnd(100, 'x')))
}

answerCommands({
  open: ({ channel, sender, options = {} }) => { open(channel, sender, options) },
  send: async ({ sender, content, hint }) => {
    const { id, data } = await send(channels.get(sender).channel, bytes(content), hint && bytes(hint))
    return { id, data: text(data) }
  },
  sendEphemeral: async ({ sender, content }) => {
    const { channel } = channels.get(sender)
    let data
    await channel.pushOutgoingEphemeralMessage(bytes(content), async (message) => { data = message.encode(); return true })
    await channel.processTasks()
    return text(data)
  },
  sync: async ({ sender }) => {
    let data = null
    await channels.get(sender).channel.pushOutgoingSyncMessage(async (message) => { data = message.encode(); return true })
    return data && text(data)
  },
  receive: ({ sender, data, hint }) => receive(channels.get(sender).channel, bytes(data), hint && bytes(hint)),
  sweepIncoming: ({ sender }) => channels.get(sender).channel.sweepIncomingBuffer().map(({ messageId }) => messageId),
  repairs: async ({ sender }) => {
    const messages = await channels.get(sender).channel.sweepRepairIncomingBuffer(async () => true)
    return messages.map((message) => text(message.encode()))
  },
  events: ({ sender }) => channels.get(sender).events.splice(0),
  log: ({ sender }) => channels.get(sender).channel.localHistory.slice(0).map(({ messageId }) => messageId),
  bloom: ({ sender }) => text(channels.get(sender).channel.filter.toBytes()),
  // What is in a message, as js-waku reads it.
  decode: ({ data }) => {
    const message = Message.decode(bytes(data))
    return message === undefined
      ? null
      : {
          kind: kind(message),
          id: message.messageId,
          sender: message.senderId,
          channel: message.channelId,
          lamport: message.lamportTimestamp === undefined ? null : Number(message.lamportTimestamp),
          history: message.causalHistory.map(({ messageId }) => messageId),
          hints: message.causalHistory.map(({ retrievalHint }) => retrievalHint ? text(retrievalHint) : null),
          bloom: message.bloomFilter && text(message.bloomFilter),
          requests: message.repairRequest.map(({ messageId, senderId }) => [messageId, senderId]),
          content: message.content && text(message.content),
          again: text(message.encode())
        }
  },

  // Messages per second, sent and received, codec included, with so many messages of history.
  bench: async ({ history, count }) => {
    const sender = filled('sender', history)
    const receiver = filled('receiver', history)
    const sent = []
    const contents = Array.from({ length: count }, (_, number) => benchContent(number))
    const start = cpuMs()
    for (const content of contents) sent.push((await send(sender, content, new Uint8Array(32))).data)
    const middle = cpuMs()
    for (const data of sent) await receive(receiver, data, undefined)
    const end = cpuMs()
    if (receiver.localHistory.length !== history + count) throw new Error('not all were delivered')
    return { send: count * 1000 / (middle - start), receive: count * 1000 / (end - middle) }
  },
  benchBloom: ({ count }) => {
    const { filter } = new MessageChannel('bench', 'bloom')
    const ids = Array.from({ length: count }, (_, number) => createHash('sha256').update(String(number)).digest('hex'))
    const start = cpuMs()
    for (const id of ids) filter.insert(id)
    const middle = cpuMs()
    let found = 0
    for (const id of ids) found += filter.lookup(id)
    const end = cpuMs()
    if (found !== count) throw new Error('an id is not found')
    return { insert: count * 1000 / (middle - start), lookup: count * 1000 / (end - middle) }
  }
}, { peer: 'sds', addresses: [] })
