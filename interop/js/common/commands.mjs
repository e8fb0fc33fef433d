// The conversation with whoever started this process: one JSON value a line, both ways.
//
//   we say   {"ready": {…}}                       once, when we can be talked to
//   we hear  {"id": 1, "do": "dial", "with": {…}}
//   we say   {"id": 1, "result": …}               or {"id": 1, "error": {"name": …, "message": …}}
//
// Commands run at the same time, so answers come in any order. When stdin ends, so does the process: nothing of
// ours outlives the one who started it.
import { createInterface } from 'node:readline'

function say (value) {
  process.stdout.write(JSON.stringify(value) + '\n')
}

async function answer (commands, line) {
  const { id, do: name, with: options } = JSON.parse(line)
  try {
    if (!Object.hasOwn(commands, name)) {
      throw new Error(`no command is called ${name}`)
    }
    say({ id, result: (await commands[name](options ?? {})) ?? null })
  } catch (error) {
    say({ id, error: { name: error.name, message: error.message } })
  }
}

// The options this process was started with.
export function startOptions () {
  return JSON.parse(process.argv[2] ?? '{}')
}

// Answer commands until there are none to come.
export function answerCommands (commands, ready) {
  const all = {
    ...commands,
    // What this process holds in memory, garbage apart.
    memory: () => {
      globalThis.gc?.()
      return process.memoryUsage().rss
    }
  }
  const lines = createInterface({ input: process.stdin })
  lines.on('line', (line) => { void answer(all, line) })
  lines.on('close', () => { process.exit(0) })
  say({ ready })
}
