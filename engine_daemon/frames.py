"""Receiving whole messages from a ZeroMQ socket that connects. Knows no messages' meaning."""

import zmq


def receive(socket: "zmq.Socket[bytes]") -> list[bytes]:
    """The frames of the next message; `zmq.Again` when there is none.

    A lost connection ends the socket's pipe at once (`IMMEDIATE`), and libzmq looks for such news
    at every hundredth frame: in the midst of a message it then aborts the process (`!_more` in
    fq.cpp, 4.3.5). Asking for events has it look between two messages.
    """
    socket.getsockopt(zmq.EVENTS)
    return socket.recv_multipart(zmq.NOBLOCK)
