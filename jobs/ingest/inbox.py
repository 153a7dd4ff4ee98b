"""The inbox: put a checked batch on the ingest stream, once and in order.

One script checks the batch's number, appends and moves the number, so that two web processes and a retried POST cannot
take the same batch twice. Should all of it fail to hold (Redis restored from an old copy), ingest still takes only
`durable_batch + 1`; this check then costs a resend, never a loss.
"""

from dataclasses import dataclass

import redis.asyncio

from jobs.ingest.batches import EventBatch
from jobs.telemetry.streams import INGEST, MAX_QUEUED_BATCHES, expect_key

EXPECT_SECONDS = 7 * 86_400  # after this silence `expect` is taken from the database again

# KEYS: expect, stream. ARGV: batch, durable + 1, longest queue, seconds, run, attempt, events
# Returns {expect, taken}; taken: 1 appended, 0 another batch is expected, -1 the queue is full.
# A heartbeat (batch 0) finding the whole stream empty knows that nothing of this attempt is on its way: if Redis lost
# the stream but not the number, the number falls back to what the database has.
_ACCEPT = """
local batch, floor = tonumber(ARGV[1]), tonumber(ARGV[2])
local expect = tonumber(redis.call('GET', KEYS[1]) or ARGV[2])
if expect < floor then expect = floor end
if batch == 0 then
  if expect > floor and redis.call('XLEN', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    expect = floor
  end
  return {expect, 0}
end
if batch ~= expect then return {expect, 0} end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[3]) then return {expect, -1} end
redis.call('XADD', KEYS[2], '*', 'run', ARGV[5], 'attempt', ARGV[6], 'batch', ARGV[1], 'events', ARGV[7])
redis.call('SET', KEYS[1], string.format('%.0f', expect + 1), 'EX', ARGV[4])
return {expect + 1, 1}
"""


class QueueFull(Exception):
    """Too many batches wait for ingest; the runner keeps this one and comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a batch: the number expected next, and whether this one was taken."""

    expect: int
    is_taken: bool


async def accept(
    client: redis.asyncio.Redis,
    batch: EventBatch,
    *,
    run_id: str,
    attempt: int,
    durable_through: int,
    max_queued: int = MAX_QUEUED_BATCHES,
) -> Receipt:
    """Append the batch if it is the expected one; a heartbeat only asks.

    Raises: QueueFull; redis.RedisError if Redis is away, OutOfMemoryError among them.
    """
    keys = (expect_key(run_id, attempt), INGEST)
    args = (batch.number, durable_through + 1, max_queued, EXPECT_SECONDS, run_id, attempt, batch.events)
    expect, taken = await client.eval(_ACCEPT, len(keys), *keys, *args)
    if taken == -1:
        raise QueueFull(f"{max_queued} batches wait to be stored.")
    return Receipt(expect=int(expect), is_taken=taken == 1)
