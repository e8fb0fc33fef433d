// Encoders and decoders of `@waku/message-encryption`, as applications use them: `node encryption.mjs '{}'`.
// Bytes go in and out as hex.
import { getPublicKey } from '@waku/message-encryption'
import * as ecies from '@waku/message-encryption/ecies'
import * as symmetric from '@waku/message-encryption/symmetric'
import { createRoutingInfo } from '@waku/utils'
import { answerCommands } from '../js/common/commands.mjs'

const contentTopic = '/pywaku/1/encryption/proto'
const routingInfo = createRoutingInfo({ clusterId: 42, numShardsInCluster: 8 }, { contentTopic })

function bytes (text) {
  return Uint8Array.from(Buffer.from(text, 'hex'))
}

function hex (value) {
  return Buffer.from(value).toString('hex')
}

function encoder ({ key, publicKey, signWith }) {
  const common = { contentTopic, routingInfo, sigPrivKey: signWith === undefined ? undefined : bytes(signWith) }
  return key === undefined
    ? ecies.createEncoder({ ...common, publicKey: bytes(publicKey) })
    : symmetric.createEncoder({ ...common, symKey: bytes(key) })
}

function decoder ({ key, privateKey }) {
  return key === undefined
    ? ecies.createDecoder(contentTopic, routingInfo, bytes(privateKey))
    : symmetric.createDecoder(contentTopic, routingInfo, bytes(key))
}

answerCommands({
  // Encrypted messages as on the wire, one for each payload.
  encode: async ({ payloads, ...keys }) => Promise.all(payloads.map(async (payload) => {
    return hex(await encoder(keys).toWire({ payload: bytes(payload) }))
  })),
  // What is in messages: null for each that js-waku cannot decrypt.
  decode: async ({ messages, ...keys }) => Promise.all(messages.map(async (message) => {
    const reader = decoder(keys)
    const decoded = await reader.fromProtoObj(routingInfo.pubsubTopic, await reader.fromWireToProtoObj(bytes(message)))
    if (decoded === undefined) return null
    return {
      payload: hex(decoded.payload),
      version: decoded.version,
      signature: decoded.signature === undefined ? null : hex(decoded.signature),
      signaturePublicKey: decoded.signaturePublicKey === undefined ? null : hex(decoded.signaturePublicKey)
    }
  })),
  publicKey: ({ privateKey }) => hex(getPublicKey(bytes(privateKey)))
}, { contentTopic, pubsubTopic: routingInfo.pubsubTopic })
