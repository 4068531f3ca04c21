"""``python -m pcitrace.campaign``: the process that forks a child a run; see :mod:`pcitrace.campaign.forks`."""

from pcitrace.campaign.forks import serve

serve()
