// Print version 1 payloads that `@waku/message-encryption` makes, as JSON, with all that they were made of:
// `node vectors.mjs > ../../tests/encryption/data/payload_v1.json`. Chance is replaced by a hash of a counter
// before the package is loaded, so the output is always the same.
import { createHash } from 'node:crypto'
import nodeCrypto from 'node:crypto'
import { readFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

let drawn = [] // what was drawn since the last vector
let counter = 0

nodeCrypto.randomBytes = (size) => {
  const parts = []
  for (let have = 0; have < size; have += 32) {
    counter += 1
    parts.push(createHash('sha256').update(`pywaku ${counter}`).digest())
  }
  const made = Buffer.concat(parts).subarray(0, size)
  drawn.push(made.toString('hex'))
  return made
}
syncBuiltinESMExports()

const { getPublicKey } = await import('@waku/message-encryption')
const { encryptAsymmetric, decryptAsymmetric, preCipher } = await import('@waku/message-encryption/ecies')
const { encryptSymmetric, decryptSymmetric } = await import('@waku/message-encryption/symmetric')

function hex (value) {
  return Buffer.from(value).toString('hex')
}

function secret (name) {
  return Uint8Array.from(createHash('sha256').update(`pywaku ${name}`).digest())
}

const key = secret('symmetric key')
const recipient = secret('recipient')
const signer = secret('signer')

const about = JSON.parse(readFileSync(new URL('node_modules/@waku/message-encryption/package.json', import.meta.url)))
const vectors = []
// Around a whole number of blocks of 256, with and without a signature; one to three bytes of payload length.
for (const size of [0, 1, 31, 188, 189, 190, 253, 254, 255, 256, 700, 65535, 65536]) {
  for (const sigPrivKey of [undefined, signer]) {
    if (size > 60000 && sigPrivKey === undefined) continue
    const payload = Uint8Array.from(Array.from({ length: size }, (_, index) => (index * 7 + size) % 256))
    drawn = []
    const data = await preCipher(payload, sigPrivKey)
    const [padding] = drawn
    drawn = []
    const symmetric = await encryptSymmetric(data, key)
    const [iv] = drawn
    drawn = []
    const ecies = await encryptAsymmetric(data, getPublicKey(recipient))
    const [ephemeral, eciesIv] = drawn
    if (hex(await decryptSymmetric(symmetric, key)) !== hex(data)) throw new Error('symmetric')
    if (hex(await decryptAsymmetric(ecies, recipient)) !== hex(data)) throw new Error('ecies')
    const large = size > 60000 // whose bytes are only hashed here
    const shown = (value) => large ? { sha256: createHash('sha256').update(value).digest('hex') } : hex(value)
    vectors.push({
      size,
      signed: sigPrivKey !== undefined,
      padding: padding ?? '',
      signature: sigPrivKey === undefined ? null : hex(data.slice(-65)),
      data: shown(data),
      symmetric: { iv, payload: shown(symmetric) },
      ecies: { ephemeral, iv: eciesIv, payload: shown(ecies) }
    })
  }
}

console.log(JSON.stringify({
  about: {
    made_by: `${about.name} ${about.version}, by interop/js-encryption/vectors.mjs`,
    layout: 'all bytes in hex; byte i of a payload of n bytes is (7 i + n) mod 256; large ones are given as hashes'
  },
  keys: {
    symmetric: hex(key),
    recipient: { private: hex(recipient), public: hex(getPublicKey(recipient)) },
    signer: { private: hex(signer), public: hex(getPublicKey(signer)) }
  },
  vectors
}, null, 1))
