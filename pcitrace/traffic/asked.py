"""What is asked of margins: how much dearer any other reading must be, in nats, for an answer to be given."""

from __future__ import annotations

__all__ = ["AGREED", "FAR", "READ_AGAIN", "STATED", "SURE"]

SURE, AGREED = 12.0, 6.0
"""Nats by which any other reading must be dearer, else an edge is null; and where the rules, which know nothing of
these costs, had found the same edge. That they agree says of one frame whose it is, not which of two ways to explain
everything is right: they follow one of them everywhere.

Learned on generated cards (`tests/cardbench`, control lines, `generic`; all families but cut-through, seeds 402, 403):
of 1,165 edges with margins of 12 and more 3 were wrong (two of frames of one byte, one beside another device's DMA); of
346 from 6 to 12 that the rules had too 2 were wrong, of the 178 that they had not 11. Of a stranger's 80 cards and ten
of another maker (16 channels, their own profiles) 2 of 5,981 were wrong from 12 on, of a send that the capture begins
in, and none of 855 from 6 to 12; of 50 with `generic` 3 of 4,047 and 8 of 593. These were of one host, where the truth
was dearer by 12 for all frames at once: between 6 and 12 hosts count, not edges, and there were some 30."""

FAR, STATED = 20.0, 8.0
"""Of a frame whose wire was not captured an edge is given if both edges are as sure in the other memory, and if another
way to explain all frames is dearer by `FAR`, for two memories may share one mistake; or if the rules had found it in
both: then it need only be as sure as `STATED` where profiles describe the cards.

Learned on generated cards that were read again (`tests/cardbench` 1204 to 1206 and 1250 to 1253, `control14`, 256
states), 118 hosts with their profiles and 158 with `generic`. With profiles 4 of 1,603 edges from 8 nats on were wrong
where another way was dearer by 16, of one host, and none of 816 that the rules had; with `generic` 5 of 1,405, of two,
and none of 580 from 12 on. Held against the same edge only 14 of 844 were. Of the ten cards of another maker, with
their wires left out, 450 values were given, none of them wrong, all with their profiles."""

READ_AGAIN = 100_000
"""Items at most that are read to doubt each answer by itself: about three seconds a host. It bounds time."""
