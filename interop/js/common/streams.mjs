// Protocols over single streams, served and used: echo, request and response, bulk, half-close, reset.
// `interop/streams.py` is the same in Python.
import { randomBytes } from 'node:crypto'
import { lpStream } from 'it-length-prefixed-stream'
import { connectionTo } from './host.mjs'

export const ECHO = '/pywaku/echo/1.0.0' // what comes in goes out, until the end
export const REQUEST = '/pywaku/request/1.0.0' // one length-prefixed request, one response of the same bytes
export const BULK = '/pywaku/bulk/1.0.0' // bytes until the end, then their count as eight bytes
export const RESET = '/pywaku/reset/1.0.0' // the first bytes that come in make the server reset the stream

const MANY = { maxInboundStreams: 5_000, maxOutboundStreams: 5_000 }

function count (bytes) {
  const buffer = Buffer.alloc(8)
  buffer.writeBigUInt64BE(BigInt(bytes))
  return buffer
}

async function readAll (stream) {
  const parts = []
  for await (const part of stream.source) {
    parts.push(part.subarray())
  }
  return Buffer.concat(parts)
}

// Close a stream on which all has been said. `stream.close()` forgets it at once, which is fastest, but over mplex
// js-libp2p hangs up when it then gets more than five frames a second for forgotten streams, be it only their ends.
async function finish (stream, connection) {
  if (connection.multiplexer === '/mplex/6.7.0') {
    await stream.closeWrite()
    for await (const _ of stream.source);
  } else {
    await stream.close()
  }
}

function seconds (since) {
  return (performance.now() - since) / 1000
}

export async function serveStreams (host) {
  const serve = (protocol, handler) => host.handle(protocol, ({ stream, connection }) => {
    handler(stream, connection).catch((error) => { stream.abort(error) })
  }, MANY)

  await serve(ECHO, async (stream) => stream.sink(stream.source))
  await serve(REQUEST, async (stream, connection) => {
    const messages = lpStream(stream)
    await messages.write(await messages.read())
    await finish(stream, connection)
  })
  await serve(BULK, async (stream) => {
    let bytes = 0
    for await (const part of stream.source) {
      bytes += part.byteLength
    }
    await stream.sink([count(bytes)])
    await stream.close()
  })
  await serve(RESET, async (stream) => {
    for await (const _ of stream.source) {
      stream.abort(new Error('reset as asked'))
      return
    }
  })
}

async function echoOnce (connection, size, chunk) {
  const stream = await connection.newStream(ECHO, MANY)
  const data = randomBytes(size)
  const back = readAll(stream) // at the same time as the writing: neither side buffers it all
  await stream.sink((function * () {
    for (let offset = 0; offset < size; offset += chunk) {
      yield data.subarray(offset, offset + chunk)
    }
  })())
  if (!data.equals(await back)) {
    throw new Error('what came back is not what was sent')
  }
}

// A stream, a request, a response, and the stream is closed.
async function requestOnce (connection, request) {
  const stream = await connection.newStream(REQUEST, MANY)
  const messages = lpStream(stream)
  await messages.write(request)
  const response = await messages.read()
  await finish(stream, connection)
  if (!request.equals(response.subarray())) {
    throw new Error('the response is not the request')
  }
}

async function repeat (times, concurrency, action) {
  let left = times
  await Promise.all(Array.from({ length: concurrency }, async () => {
    while (left-- > 0) await action()
  }))
}

export function streamCommands (host) {
  return {
    // Echo `size` bytes on each of `streams` streams at the same time.
    echo: async ({ peer, streams = 1, size = 200, chunk = 16_384 }) => {
      const connection = connectionTo(host, peer)
      await Promise.all(Array.from({ length: streams }, async () => echoOnce(connection, size, chunk)))
      return streams
    },
    // Send, close our half, and read what the peer says after that.
    halfClose: async ({ peer, size }) => {
      const stream = await connectionTo(host, peer).newStream(BULK)
      await stream.sink([randomBytes(size)])
      return Number((await readAll(stream)).readBigUInt64BE())
    },
    // Reset a stream in the middle of an echo.
    reset: async ({ peer }) => {
      const stream = await connectionTo(host, peer).newStream(ECHO)
      void stream.sink((async function * () {
        yield randomBytes(100)
        await new Promise(() => {})
      })()).catch(() => {})
      for await (const _ of stream.source) break
      stream.abort(new Error('reset as asked'))
    },
    // The name of the error that a stream ends with when the peer resets it; null if it ends well.
    resetByPeer: async ({ peer }) => {
      const stream = await connectionTo(host, peer).newStream(RESET)
      try {
        void stream.sink([randomBytes(100)]).catch(() => {})
        await readAll(stream)
        return null
      } catch (error) {
        return error.name
      }
    },
    // Open a stream under any protocol and close it.
    open: async ({ peer, protocol }) => {
      const stream = await connectionTo(host, peer).newStream(protocol)
      await stream.close()
      return stream.protocol
    },
    // Seconds that `count` requests take, `concurrency` at a time.
    benchRequests: async ({ peer, count, concurrency, size = 200 }) => {
      const connection = connectionTo(host, peer)
      const request = randomBytes(size)
      const start = performance.now()
      await repeat(count, concurrency, async () => requestOnce(connection, request))
      return seconds(start)
    },
    // Seconds until the peer has counted `bytes`, written `chunk` at a time.
    benchBulk: async ({ peer, bytes, chunk }) => {
      const stream = await connectionTo(host, peer).newStream(BULK)
      const data = randomBytes(chunk)
      const start = performance.now()
      await stream.sink((function * () {
        for (let sent = 0; sent < bytes; sent += chunk) yield data
      })())
      const counted = Number((await readAll(stream)).readBigUInt64BE())
      if (counted < bytes) {
        throw new Error(`${counted} of ${bytes} bytes arrived`)
      }
      return seconds(start)
    }
  }
}
