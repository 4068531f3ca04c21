"""What a PCI analyser does for its owner: for a capture of one bus, with or without a network card.

`conditions` is the one language in which rows are chosen; `devices` and `names` say who is who.
"""
