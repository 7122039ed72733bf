"""The file with the tokens of an HTTP API, and what a request presents."""

import asyncio
from pathlib import Path

import pytest

from bmq.errors import ConfigurationError
from bmq.naming.bearer import bearer_of, watching_token
from bmq.runtime.bearer_tokens import READ_AGAIN_S, BearerTokens, read_tokens

OLD, NEW = "an-old-token-of-24-chars", "a-new-token-of-24-chars!"


def test_each_line_is_a_token_but_for_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# rotated in May\n{OLD}\n\n  {NEW}  \n")
    tokens = BearerTokens(file, option="admin_token_file")

    async def asked() -> list[bool]:
        return [await tokens.admits(one) for one in (OLD, NEW, "", "# rotated in May", OLD[:-1], f"{OLD} ", "ü" * 24)]

    assert asyncio.run(asked()) == [True, True, False, False, False, False, False]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has no token"),
        (b"# none\n\n", "it has no token"),
        (b"short\n", "too short"),
        (b"\xff\xfe", "it is not text"),
    ],
)
def test_a_file_without_tokens_is_refused_with_its_name_and_a_remedy(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"admin_token_file .*tokens: .*{why}"):
        read_tokens(file, option="admin_token_file")


def test_a_configured_token_counts_beside_those_of_the_file_and_without_one(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(OLD)

    async def asked(tokens: BearerTokens) -> list[bool]:
        return [await tokens.admits(one) for one in (OLD, NEW, "")]

    assert asyncio.run(asked(BearerTokens(file, option="admin_token_file", tokens=[NEW]))) == [True, True, False]
    assert asyncio.run(asked(BearerTokens(None, option="admin_token_file", tokens=[NEW]))) == [False, True, False]


def test_of_several_configured_tokens_each_is_taken_so_that_one_can_be_replaced_node_by_node() -> None:
    async def main() -> None:
        tokens = BearerTokens(None, option="admin_token_file", tokens=[OLD, NEW])
        assert [await tokens.admits(one) for one in (OLD, NEW, "another-token-altogether")] == [True, True, False]

    asyncio.run(main())


def test_what_is_made_of_a_token_watches_and_opens_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(OLD)

    async def main() -> None:
        tokens = BearerTokens(file, option="admin_token_file", tokens=[NEW])
        for token in (OLD, NEW):
            made = watching_token(token)
            assert token not in made and len(made) == 64
            assert [await tokens.admits(one) for one in (token, made, watching_token(made))] == [True, False, False]
            assert [await tokens.admits_watch(one) for one in (token, made)] == [True, True]
        assert not await tokens.admits_watch(watching_token("another-token-altogether"))
        assert not await tokens.admits_watch("")

    asyncio.run(main())


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        BearerTokens(tmp_path / "none", option="admin_token_file")


def test_a_change_of_the_file_counts_without_a_restart_and_an_unreadable_one_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(OLD)
    tokens = BearerTokens(file, option="admin_token_file")

    class Loop(asyncio.SelectorEventLoop):
        """Whose time the test sets."""

        ahead_s = 0.0

        def time(self) -> float:
            return super().time() + self.ahead_s

    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        assert await tokens.admits(OLD)
        file.write_text(NEW)
        assert await tokens.admits(OLD), "not read again yet"
        loop.ahead_s += READ_AGAIN_S + 1
        assert [await tokens.admits(OLD), await tokens.admits(NEW)] == [False, True]
        file.unlink()
        loop.ahead_s += READ_AGAIN_S + 1
        assert not await tokens.admits(NEW)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(test())


def test_a_request_presents_the_token_of_the_scheme_bearer_alone() -> None:
    assert bearer_of(f"Bearer {NEW}") == bearer_of(f"bEARER  {NEW} ") == NEW
    assert bearer_of("") == bearer_of("Bearer") == bearer_of(f"Basic {NEW}") == bearer_of(NEW) == ""
