"""Connects to HOST PORT, sends so many bytes in pieces, stays a while. Used by tests as a job's process."""

import socket
import sys
import time

host, port, amount, pause_s, stay_s = (
    sys.argv[1],
    int(sys.argv[2]),
    int(sys.argv[3]),
    float(sys.argv[4]),
    float(sys.argv[5]),
)
connection = socket.create_connection((host, port))
connection.settimeout(30)
while amount > 0:
    piece = min(amount, 1 << 18)
    connection.sendall(b"x" * piece)
    amount -= piece
    time.sleep(pause_s)
connection.close()
time.sleep(stay_s)
