"""The entries of DNS node lists, with the vectors of the specification and of go-ethereum (EIP-1459)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.keys import PrivateKey, PublicKey
from pywaku.peers.enrtree import MAX_BRANCHES, Branch, Link, Root, hash_of, matches, parse_entry, parse_url
from pywaku.wire.enr import Enr
from tests.support.peers import key_of, record_of

# devp2p/dnsdisc.md, "DNS Record Structure"
ROOT = (
    "enrtree-root:v1 e=JWXYDBPXYWG6FX3GMDIBFA6CJ4 l=C7HRFPF3BLGF3YR4DY5KX3SMBE seq=1 "
    "sig=o908WmNp7LibOfPsr4btQwatZJ5URBr2ZAuxvK4UWHlsB9sUOTJQaGAlLPVAhM__XJesCHxLISo94z5Z2a463gA"
)
ROOT_KEY = PublicKey(
    "secp256k1", bytes.fromhex("029f88229042fef9200246f49f94d9b77c4e954721442714e85850cb6d9e5daf2d")
)
LINK = "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@morenodes.example.org"
BRANCH = "enrtree-branch:2XS2367YHAXJFGLZHVAWLQD4ZY,H4FHT4B454P6UXFD7JCYQ5PWDY,MHTDO6TMUBRIA2XWG5LUDACK24"
LEAVES = {
    "2XS2367YHAXJFGLZHVAWLQD4ZY": (
        "enr:-HW4QOFzoVLaFJnNhbgMoDXPnOvcdVuj7pDpqRvh6BRDO68aVi5ZcjB3vzQRZH2IcLBGHzo8uUN3snqmgTiE56CH3AMBgmlkgnY0"
        "iXNlY3AyNTZrMaECC2_24YYkYHEgdzxlSNKQEnHhuNAbNlMlWJxrJxbAFvA"
    ),
    "H4FHT4B454P6UXFD7JCYQ5PWDY": (
        "enr:-HW4QAggRauloj2SDLtIHN1XBkvhFZ1vtf1raYQp9TBW2RD5EEawDzbtSmlXUfnaHcvwOizhVYLtr7e6vw7NAf6mTuoCgmlkgnY0"
        "iXNlY3AyNTZrMaECjrXI8TLNXU0f8cthpAMxEshUyQlK-AM0PW2wfrnacNI"
    ),
    "MHTDO6TMUBRIA2XWG5LUDACK24": (
        "enr:-HW4QLAYqmrwllBEnzWWs7I5Ev2IAs7x_dZlbYdRdMUx5EyKHDXp7AV5CkuPGUPdvbv1_Ms1CPfhcGCvSElSosZmyoqAgmlkgnY0"
        "iXNlY3AyNTZrMaECriawHKWdDRk2xeZkrOXBQ0dfMFLHY4eENZwdufn1S1o"
    ),
}


def test_the_signature_of_the_vector_s_root_is_valid_for_its_key_only() -> None:
    root = Root.parse(ROOT)
    assert (root.records, root.links, root.seq) == (
        "JWXYDBPXYWG6FX3GMDIBFA6CJ4",
        "C7HRFPF3BLGF3YR4DY5KX3SMBE",
        1,
    )
    assert root.verify(ROOT_KEY)
    assert not root.verify(key_of("other").public)
    assert str(root) == ROOT


def test_a_root_with_another_content_does_not_verify() -> None:
    assert not Root.parse(ROOT.replace("seq=1", "seq=2")).verify(ROOT_KEY)


def test_the_entries_of_the_vector_match_their_names_and_parse() -> None:
    assert hash_of(BRANCH) == "JWXYDBPXYWG6FX3GMDIBFA6CJ4"
    assert hash_of(LINK) == "C7HRFPF3BLGF3YR4DY5KX3SMBE"
    assert parse_entry(BRANCH) == Branch(tuple(LEAVES))
    link = parse_entry(LINK)
    assert isinstance(link, Link)
    assert (link.domain, str(link)) == ("morenodes.example.org", LINK)
    for name, text in LEAVES.items():
        assert matches(text, name)
        record = parse_entry(text)
        assert isinstance(record, Enr)
        assert record.text == text


def test_an_own_root_verifies() -> None:
    key = key_of("tree")
    root = Root.sign(key, records=hash_of("a"), links=hash_of("b"), seq=7)
    assert Root.parse(str(root)) == root
    assert root.verify(key.public)


def test_a_key_of_go_ethereum_s_tests_signs_the_same() -> None:
    key = PrivateKey.from_hex("dc599867fc513f8f5e2c2c9c489cde5e71362d1d9ec6e693e0de063236ed1240")
    assert key.public == ROOT_KEY
    root = Root.sign(key, records="JWXYDBPXYWG6FX3GMDIBFA6CJ4", links="C7HRFPF3BLGF3YR4DY5KX3SMBE", seq=1)
    assert root.signature[:64] == Root.parse(ROOT).signature[:64]


def test_a_hash_may_be_longer_or_shorter_but_not_too_short() -> None:
    assert matches(BRANCH, hash_of(BRANCH))
    assert not matches(BRANCH + " ", hash_of(BRANCH))
    assert not matches(BRANCH, "")
    assert not matches(BRANCH, hash_of(BRANCH)[:8])
    assert not matches(BRANCH, hash_of(BRANCH).lower())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "enrtree-root:v1",
        ROOT + " ",
        " " + ROOT,
        ROOT.replace("v1", "v2"),
        ROOT.replace("seq=1", "seq=-1"),
        ROOT.replace("seq=1", "seq=" + "9" * 30),
        ROOT.replace("seq=1", "seq=١"),
        ROOT.replace("e=J", "e=j"),
        ROOT[:-4],
        ROOT + "AAAA",
        ROOT.replace("l=C7HRFPF3BLGF3YR4DY5KX3SMBE", "l=C7HRFPF3"),
    ],
)
def test_what_is_no_root_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        Root.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "enr:",
        "enr:AAAA",
        "enrtree-branch:a,b",
        "enrtree-branch:,",
        BRANCH + ",",
        "enrtree-branch:" + ",".join([hash_of("x")] * (MAX_BRANCHES + 1)),
        "enrtree://",
        "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2",
        "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@",
        "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@a b",
        "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@..",
        "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@" + "a." * 200 + "org",
        "enrtree://AAAA@example.org",
        "enrtree://" + "A" * 53 + "@example.org",
        "enrtree-branch:" + "A" * 10_000,
    ],
)
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_entry(text)


def test_an_empty_branch_is_an_entry() -> None:
    assert parse_entry("enrtree-branch:") == Branch(())


def test_a_url_that_cannot_be_meant_is_refused_with_a_reason() -> None:
    assert str(parse_url(f" {LINK} ")) == LINK
    with pytest.raises(InvalidInput, match="enrtree"):
        parse_url("https://example.org")


def test_names_are_not_case_sensitive() -> None:
    assert parse_url(LINK.replace("morenodes", "MoreNodes") + ".") == parse_url(LINK)


@given(st.text(max_size=300))
def test_any_text_is_an_entry_or_a_decode_error(text: str) -> None:
    for prefix in ("", "enr:", "enrtree://", "enrtree-branch:", "enrtree-root:v1 "):
        for parse in (parse_entry, Root.parse):
            with contextlib.suppress(DecodeError):
                parse(prefix + text)
        matches(text, text)


def test_records_parse_as_entries() -> None:
    record = record_of("a")
    assert parse_entry(record.text) == record
