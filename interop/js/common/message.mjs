// What the peers need of Waku messages: their protobuf encoding and their hash (message.md, 14/WAKU2-MESSAGE).
import { sha256 } from '@noble/hashes/sha2'

const PAYLOAD = (1 << 3) | 2
const CONTENT_TOPIC = (2 << 3) | 2
const TIMESTAMP = (10 << 3) | 0

function varint (number) {
  const bytes = []
  let rest = BigInt(number)
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) | 128)
    rest >>= 7n
  }
  bytes.push(Number(rest))
  return Buffer.from(bytes)
}

// A WakuMessage; `timestamp` in nanoseconds, not negative.
export function wakuMessage (payload, contentTopic, timestamp) {
  const topic = Buffer.from(contentTopic)
  return Buffer.concat([
    Buffer.of(PAYLOAD), varint(payload.byteLength), payload,
    Buffer.of(CONTENT_TOPIC), varint(topic.byteLength), topic,
    Buffer.of(TIMESTAMP), varint(timestamp << 1n) // sint64 is zigzag
  ])
}

// The deterministic message hash with the hash function that js-waku uses.
export function messageHash (pubsubTopic, payload, contentTopic, timestamp) {
  const time = Buffer.alloc(8)
  time.writeBigInt64BE(timestamp)
  return sha256(Buffer.concat([Buffer.from(pubsubTopic), payload, Buffer.from(contentTopic), time]))
}
