// A js-libp2p peer for the tests and benchmarks of streams: `node peer.mjs '{"transport": "tcp", …}'`.
import './common/polyfill.mjs'
import { answerCommands, startOptions } from './common/commands.mjs'
import { dial, hostCommands, introduction, makeHost } from './common/host.mjs'
import { serveStreams, streamCommands } from './common/streams.mjs'

const options = startOptions()
const host = await makeHost(options)
await serveStreams(host)

const crowd = []

answerCommands({
  ...hostCommands(host),
  ...streamCommands(host),
  // Make hosts that listen nowhere, and later have some of them dial: to see what a connection costs in memory.
  crowd: async ({ size }) => {
    while (crowd.length < size) {
      crowd.push(await makeHost({ ...options, listen: false }))
    }
  },
  dialFromCrowd: async ({ address, first, last }) => {
    for (const one of crowd.slice(first, last)) {
      await dial(one, address)
    }
  }
}, introduction(host))
