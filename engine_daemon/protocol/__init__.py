"""What travels between processes and lies in recordings: typed messages, events and their bytes.

Knows msgpack and msgspec only: no sockets, no files, no torch.
"""
