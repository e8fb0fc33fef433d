// A js-libp2p host as the tests and benchmarks want it: one transport, one muxer, noise, identify and ping.
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { generateKeyPair } from '@libp2p/crypto/keys'
import { identify } from '@libp2p/identify'
import { mplex } from '@libp2p/mplex'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { webSockets } from '@libp2p/websockets'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const TRANSPORTS = {
  tcp: { make: tcp, listen: '/ip4/127.0.0.1/tcp/0' },
  ws: { make: webSockets, listen: '/ip4/127.0.0.1/tcp/0/ws' }
}
const MUXERS = { yamux, mplex }
const KEYS = { secp256k1: 'secp256k1', ed25519: 'Ed25519' }

// Options: transport (tcp, ws), muxer (yamux, mplex), key (secp256k1, ed25519), listen (true unless told).
export async function makeHost ({ transport = 'tcp', muxer = 'yamux', key = 'secp256k1', listen = true }, services = {}) {
  const { make, listen: address } = TRANSPORTS[transport]
  return createLibp2p({
    privateKey: await generateKeyPair(KEYS[key]),
    addresses: { listen: listen ? [address] : [] },
    transports: [make()],
    connectionEncrypters: [noise()],
    streamMuxers: [MUXERS[muxer]()],
    // The defaults slow down many connections from one address, and here all come from 127.0.0.1.
    connectionManager: { inboundConnectionThreshold: 10_000, maxIncomingPendingConnections: 1_000, maxConnections: 5_000 },
    services: { identify: identify({ agentVersion: 'js-peer/1.0' }), ping: ping(), ...services }
  })
}

// What the one who started us has to know of a host.
export function introduction (host) {
  return { peer: host.peerId.toString(), addresses: host.getMultiaddrs().map(String) }
}

// Connect to an address; the peer that answers there.
export async function dial (host, address) {
  return (await host.dial(multiaddr(address))).remotePeer.toString()
}

// Commands about connections, the same for every peer.
export function hostCommands (host) {
  const identified = new Map()
  const waiting = new Map()
  host.addEventListener('peer:identify', ({ detail }) => {
    const peer = detail.peerId.toString()
    const info = {
      agent: detail.agentVersion,
      protocolVersion: detail.protocolVersion,
      protocols: [...detail.protocols].sort(),
      addresses: detail.listenAddrs.map(String),
      observed: detail.observedAddr?.toString() ?? null,
      key: Buffer.from(detail.connection.remotePeer.publicKey.raw).toString('hex'),
      keyType: detail.connection.remotePeer.publicKey.type,
      signedRecord: detail.signedPeerRecord != null
    }
    identified.set(peer, info)
    waiting.get(peer)?.resolve(info)
  })

  return {
    dial: async ({ address }) => dial(host, address),
    // Milliseconds there and back.
    ping: async ({ peer }) => host.services.ping.ping(connectionTo(host, peer).remotePeer),
    // What the peer has told of itself; waits until it has.
    identified: async ({ peer }) => {
      if (!identified.has(peer)) {
        if (!waiting.has(peer)) waiting.set(peer, Promise.withResolvers())
        return waiting.get(peer).promise
      }
      return identified.get(peer)
    },
    connections: async () => host.getConnections().map((connection) => ({
      peer: connection.remotePeer.toString(),
      address: connection.remoteAddr.toString(),
      direction: connection.direction,
      muxer: connection.multiplexer,
      encryption: connection.encryption,
      streams: connection.streams.map((stream) => stream.protocol ?? '')
    })),
    hangup: async ({ peer }) => connectionTo(host, peer).close(),
    stop: async () => host.stop()
  }
}

// The open connection with a peer named by its text.
export function connectionTo (host, peer) {
  const connection = host.getConnections().find((one) => one.remotePeer.toString() === peer)
  if (connection === undefined) {
    throw new Error(`not connected to ${peer}`)
  }
  return connection
}
