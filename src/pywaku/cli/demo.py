"""`pywaku demo`: nodes on this machine exchange messages, one of them through service nodes that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pywaku import Event, MessageRecord, Node, NodeConfig, Subscription
    from pywaku.messaging.event import MessageEventName

_TOPIC = "/pywaku/1/demo/utf8"
_EVENTS: tuple[MessageEventName, ...] = (
    "message:propagated",
    "message:sent",
    "message:stored",
    "message:error",
)
_PATIENCE_S = 30.0


@click.command()
def demo() -> None:
    """Three nodes on this machine exchange messages; two are full nodes, the third a light one.

    carol, the light node, sends through alice and bob at once. bob stores messages and tells her that hers is
    among them. Then alice leaves, and carol goes on with bob alone.
    """
    import trio

    if not trio.run(_run):
        raise click.ClickException("not every message arrived")


async def _run() -> bool:
    import trio

    from pywaku import Message, open_node

    complete = False
    with trio.move_on_after(_PATIENCE_S):
        async with open_node(_full(store=True)) as bob, open_node(_light(bob)) as carol:
            _tell_of(carol)
            codec = carol.codec(_TOPIC)
            at_bob = await bob.subscribe(codec)
            at_carol = await carol.subscribe(codec)
            async with open_node(_full(bob)) as alice:
                click.echo(f"alice  {alice.peer_id}  relays, and serves light nodes")
                click.echo(f"bob    {bob.peer_id}  does the same, and stores messages")
                click.echo(f"carol  {carol.peer_id}  is a light node: she uses both of them")
                await carol.connect(alice.addresses[1])
                while carol.health != "Healthy":  # noqa: ASYNC110 - as a person would, who looks at times
                    await trio.sleep(0.05)
                carol.send(codec, Message(b"hello from the edge"))
                await _read("bob", at_bob)
                await _read("carol", at_carol)
                alice.send(codec, Message(b"hello carol, alice here"))
                await _read("carol", at_carol)
                await _nothing_pending(carol)
            click.echo("alice leaves")
            async with open_node(_full(bob)) as dave:
                click.echo(f"dave   {dave.peer_id}  comes, and knows only bob")
                at_dave = await dave.subscribe(codec)
                request_id = carol.send(codec, Message(b"still here"))
                while not await _read("dave", at_dave, "still here"):
                    pass  # relay lets newcomers have what was said just before
                await _nothing_pending(carol)
                record = await carol.messages.get_by_request_id(request_id)
                complete = record is not None and record.sent and record.stored
    if complete:
        click.echo("every message reached every node; all of them are closed again")
    return complete


async def _nothing_pending(node: Node) -> None:
    import trio

    while node.pending_requests:  # noqa: ASYNC110
        await trio.sleep(0.05)


def _tell_of(carol: Node) -> None:
    def tell(event: Event[MessageRecord]) -> None:
        record = event.detail
        if record.request_id is not None:
            text = record.message.payload.decode()
            click.echo(f"  carol's {text!r}: {event.name.removeprefix('message:')}")

    for name in _EVENTS:
        carol.events.add_event_listener(name, tell)
    carol.events.add_event_listener("health:change", lambda event: click.echo(f"  carol is {event.detail}"))


async def _read(name: str, subscription: Subscription, text: str | None = None) -> bool:
    record = await anext(subscription)
    read = record.message.payload.decode()
    click.echo(f"  {name} reads {read!r}  (hash {record.message_hash.hex()[:12]}…)")
    return read == text


def _full(*known: Node, store: bool = False) -> NodeConfig:
    from pywaku import NodeConfig

    return NodeConfig(
        mode="relay",
        cluster_id=42,
        shards=[0],
        bootstrap_nodes=[node.addresses[0] for node in known],
        listen_address="127.0.0.1",
        websocket_port=0,
        store=store,
        store_url="sqlite://:memory:",
    )


def _light(*known: Node) -> NodeConfig:
    from pywaku import NodeConfig

    return NodeConfig(
        mode="edge",
        cluster_id=42,
        shards=[0],
        bootstrap_nodes=[node.addresses[0] for node in known],
        tcp_port=None,
        store_confirmation=True,
    )
