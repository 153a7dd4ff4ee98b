"""Messages of a conversation as data sets write them, checked, and in the one form that templates read."""

from typing import Any

from jobs.engine.problem import RunProblem

Message = dict[str, Any]
_ROLES = ("system", "user", "assistant", "tool")
_SHARE_GPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "observation": "tool"}
"""Roles by the words of ShareGPT's format, whose messages are `{"from": "human", "value": "..."}`."""
_FLAGS = ("train", "weight")
"""Keys of a message that say whether it is learned; `weight` as OpenAI's fine-tuning files have it."""


def is_conversation(value: object) -> bool:
    """Return True for a list of messages in which the assistant says something."""
    messages = value if isinstance(value, list) else []
    return bool(messages) and all(map(is_message, messages)) and any(role_of(m) == "assistant" for m in messages)


def role_of(message: Message) -> object:
    """Return who speaks, by the words that templates know."""
    role = message.get("role", message.get("from"))
    return _SHARE_GPT.get(role, role) if isinstance(role, str) else role


def as_messages(value: object, field: str, column: str, number: int) -> list[Message]:
    """Return the messages that row `number` (from 0) has in `column`. Raises: RunProblem naming the `field`."""
    if not (isinstance(value, list) and value and all(map(is_message, value))):
        wanted = "text or a list of messages" if field == "prompt_column" else "a list of messages"
        raise RunProblem(
            f"data.{field}",
            f"Row {number + 1} holds {kind_of(value)} in column {column!r}. It must be {wanted} with role and content.",
        )
    return [_message(message) for message in value]


def is_message(value: object) -> bool:
    """Return True for a role with a text; an assistant that calls tools need not say anything."""
    if not isinstance(value, dict) or role_of(value) not in _ROLES:
        return False
    is_call = role_of(value) == "assistant" and isinstance(value.get("tool_calls"), list) and value["tool_calls"]
    content = value.get("content", value.get("value"))
    return isinstance(content, str) or (content is None and bool(is_call))


def _message(message: Message) -> Message:
    """Return a message with all that its template may read. Parquet gives every message the keys of all, as None."""
    own = dict(message)
    if own.get("role") is None and "from" in own:
        own = {"role": role_of(own), "content": own.get("value")} | {
            key: value for key, value in own.items() if key not in ("from", "value", "role", "content")
        }
    filled = {key: value for key, value in own.items() if value is not None or key == "content"}
    return filled if "content" in filled else {**filled, "content": None}


def take_flags(messages: list[Message], *, which: str, field: str, number: int) -> list[bool]:
    """Return for each message whether it is to be trained, and take what says so out of the messages.

    `which` turns of the assistant are trained: all, or the last. A message's own `train` (true, false) or `weight`
    (0, 1) decides for it; where any has one, those without are as `which` says. Messages of others never are.
    Raises: RunProblem naming the `field`, for a flag that is neither.
    """
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    flags = [False] * len(messages)
    for turn in turns if which == "all" else turns[-1:]:
        flags[turn] = True
    for i, message in enumerate(messages):
        for key in _FLAGS:
            own = message.pop(key, None)
            if own is None:
                continue
            if own not in (0, 1):
                raise RunProblem(
                    f"data.{field}",
                    f"Row {number + 1} has a message whose {key} is {kind_of(own)}. It must be true, false, 0 or 1.",
                )
            flags[i] = bool(own) and message["role"] == "assistant"
    return flags


def kind_of(value: object) -> str:
    """Return what a value is, for a sentence about it."""
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
