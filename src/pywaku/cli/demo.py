"""`pywaku demo`: three nodes on this machine, a line of them, exchange messages."""

from __future__ import annotations

import click

_TOPIC = "/pywaku/1/demo/utf8"
_NAMES = ("alice", "bob", "carol")
_GREETINGS = {
    "alice": "hello from alice",
    "bob": "bob relays for both of you",
    "carol": "carol never met alice, and reads her all the same",
}
_PATIENCE_S = 30.0


@click.command()
def demo() -> None:
    """Three nodes on this machine exchange messages over TCP and WebSocket.

    alice and carol know only bob; what they say to each other goes through his relay.
    """
    import trio

    if not trio.run(_run):
        raise click.ClickException("not every message arrived")


async def _run() -> bool:
    from contextlib import AsyncExitStack

    import trio

    from pywaku import Node, WakuMessage, open_node

    heard: dict[str, set[str]] = {name: set() for name in _NAMES}
    complete = trio.Event()

    async def listen(name: str, node: Node) -> None:
        async with node.subscribe(_TOPIC) as subscription:
            async for received in subscription:
                text = received.message.payload.decode()
                if text not in heard[name]:
                    heard[name].add(text)
                    click.echo(f"  {name:<5} reads  {text!r}  (hash {received.message_hash.hex()[:12]}…)")
                if all(len(texts) == len(_NAMES) for texts in heard.values()):
                    complete.set()

    async with AsyncExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name in _NAMES:
            nodes[name] = await stack.enter_async_context(
                open_node(
                    mode="relay",
                    cluster_id=42,
                    shards=[0],
                    bootstrap_nodes=[],
                    listen_address="127.0.0.1",
                    websocket_port=0 if name == "bob" else None,
                )
            )
            click.echo(f"{name} is {nodes[name].peer_id}")
        by_tcp, by_websocket = nodes["bob"].addresses
        if "/ws/" in str(by_tcp):
            by_tcp, by_websocket = by_websocket, by_tcp
        await nodes["alice"].connect(by_tcp)
        await nodes["carol"].connect(by_websocket)
        click.echo(f"alice and bob are connected over TCP        {by_tcp}")
        click.echo(f"carol and bob are connected over WebSocket  {by_websocket}")
        topic = nodes["bob"].pubsub_topics[0]
        with trio.move_on_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for name, node in nodes.items():
                    nursery.start_soon(listen, name, node)
                while len(nodes["bob"].relay.mesh(topic)) < 2:  # noqa: ASYNC110 - it is announced nowhere
                    await trio.sleep(0.05)
                click.echo(f"bob's mesh on {topic} holds both of them")
                for name, text in _GREETINGS.items():
                    outcome = await nodes[name].publish(WakuMessage(text.encode(), _TOPIC))
                    click.echo(f"  {name:<5} says   {text!r}  (taken by {outcome.peers} peer(s))")
                await complete.wait()
                nursery.cancel_scope.cancel()
    if complete.is_set():
        click.echo("every message reached every node; all of them are closed again")
    return complete.is_set()
