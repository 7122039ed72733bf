"""Every bound on what another node may make this one read, hold or wait for. One place, so that they can be weighed
together.
"""

from typing import Final

HELLO_BYTES_MAX: Final = 4 << 10
"""The first frame of a connection: what a stranger can make this process read."""

HEADER_BYTES_MAX: Final = 16 << 20
"""A frame's header, which holds everything but record batches. What does not fit fails its call, and no other: calls
whole, answers only towards nodes that know no parts."""

PART_BYTES: Final = 64 << 10
"""An answer whose header is longer travels in parts of so many bytes, between which others' answers go out."""

ANSWER_BYTES_MAX: Final = 128 << 20
"""An answer's header, all of its parts together."""

ATTACHMENT_BYTES_MAX: Final = 128 << 20
"""A frame's record batches: one produce payload (100 MiB at most), or a tail's answer (TAIL_BYTES_MAX, or one
batch)."""

TAIL_BYTES_MAX: Final = 32 << 20
"""What a proxy asks of one owner at once; the first batch comes whole, however large."""

FOLLOWED_MAX: Final = 50_000
"""Partitions that one proxy follows at one owner."""

FOLLOWED_ANSWER_BYTES: Final = 4 << 20
"""What one answer to a poll for followed tails has; the first batch comes whole, however large."""

FOLLOWED_PARTITION_BYTES: Final = 1 << 20
"""What it has of one partition, likewise."""

FOLLOWED_READY_BYTES: Final = 16 << 20
"""Batches that an owner keeps for a session whose client does not take them; beyond it its partitions are not looked
at."""

FOLLOWED_CACHE_BYTES: Final = 32 << 20
"""Batches that a proxy keeps of the tails that it follows, of all owners together; the newest answer is kept whole,
however large."""

FOLLOWED_POLL_S: Final = 5.0
"""How long a poll for followed tails waits."""

FOLLOWED_UNUSED_S: Final = 10.0
"""A tail that nobody read for so long is followed no more."""

FOLLOWED_DOUBTED_S: Final = 30.0
"""Where nothing was heard of a followed tail for so long, one reader asks its owner whether there is nothing."""

FOLLOWED_UNPOLLED_S: Final = 60.0
"""A session that nobody polled for so long is over."""

FOLLOWED_LOOK_S: Final = 0.25
"""How often an owner looks whether a followed tail has something new besides records."""

FOLLOWED_LOOKED_AT: Final = 500
"""So often an owner compares so many of a session's partitions with what their follower knows: a log start that was
raised, a segment that was written. A bounded part of the loop's time, however many are followed."""

RECEIVE_BUFFER_BYTES: Final = 256 << 10
"""The buffer that all connections of a server read into, or those of a client. A frame that is not whole in there gets
memory of its own."""

SMALL_BUFFER_BYTES: Final = 32 << 10
"""The same for connections that carry little."""

FRAME_TRUST_BYTES: Final = 1 << 20
"""What is set aside at once for a frame that has only begun to arrive; doubled as bytes arrive."""

CALLS_MAX: Final = 10_000
"""Calls of one connection that are not answered yet, on either side."""

UNTAKEN_BYTES_MAX: Final = 32 << 20
"""While a peer does not read its answers: bytes of those, and of its calls that wait until it does, of one connection,
above which a server reads no more of it. Nodes always read: only a peer that is stuck, or means harm, comes to this."""

QUEUED_BYTES_MAX: Final = 32 << 20
"""Bytes of calls that a client holds because the other side does not take more for now."""

PRODUCE_BYTES_MAX: Final = 64 << 20
"""Bytes of produce calls that a server works on, of all its connections together, above which it reads none of them."""

PRODUCE_CONNECTION_BYTES_MAX: Final = 16 << 20
"""The same of one connection, so that one proxy leaves something to the others."""

SAID_BYTES_MAX: Final = 64 << 20
"""JoinGroup and SyncGroup requests at a broker whose groups do not have yet what they say, of all its connections
together. Beyond it clients are told to ask again: their coordinator is loading."""

SAID_ADDRESS_BYTES_MAX: Final = 16 << 20
"""The same of clients at one address."""

GROUP_READS_BYTES_MAX: Final = 64 << 20
"""Answers about groups (OffsetFetch, DescribeGroups, ListGroups) that a broker works out or its peers have yet to take,
of all its connections together. Whoever finds no room waits its turn. Answers of few offsets have a quarter more of
this, and of the next two, for themselves."""

GROUP_READS_CONNECTION_BYTES_MAX: Final = 32 << 20
"""The same of one connection, so that a node which takes nothing leaves something to the others."""

GROUP_READS_ADDRESS_BYTES_MAX: Final = 16 << 20
"""The same of clients at one address."""

CONNECTIONS_MAX: Final = 10_000
"""Connections of nodes to one server."""

BATCHES_MAX: Final = 1_000_000
"""Record batches in one answer."""

PARTITIONS_MAX: Final = 100_000
"""Partitions named in one call."""

ERROR_TEXT_CHARS_MAX: Final = 2_000
"""How many characters of an error's text cross."""

CONNECT_TIMEOUT_S: Final = 2.0
"""Until a connection stands and the hello is answered."""

BACKOFF_FIRST_S: Final = 0.02
"""The first wait after a connection was lost or refused; see the next."""

BACKOFF_MAX_S: Final = 1.0
"""After a connection was lost or refused nothing is tried for a while, and calls fail at once; doubled each time up to
the second number."""

ALIVE_EVERY_S: Final = 1.0
"""A server says so often that it is there, on each connection that waits for it and that it has nothing else to say on.
Where nothing is waited for, the client asks."""

SILENT_TICKS_MAX: Final = 5
"""A client gives a connection up when it has heard nothing for so many of these: within the lease that a broker has (6
s). Ticks and not seconds: one that was itself stopped for a while does not blame the other side."""

STRANGERS_MAX: Final = 256
"""Connections that have yet to show that they belong to the cluster (internal_strangers_max); beyond it the one that
came first goes, of the address that has the most. They count towards no other limit, so that strangers keep no node
out."""

HELLO_WITHIN_TICKS: Final = 3
"""How long a stranger has for its hello, and for the proof that it knows the secret."""

IDLE_TICKS_MAX: Final = 600
"""A connection that nobody used for so long is asked to close."""
STALLED_TICKS_MAX: Final = 60
"""A peer that takes nothing of what it was sent for so long, or does not close when it was asked to, is cut off."""
