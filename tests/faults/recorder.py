# SPDX-License-Identifier: Apache-2.0
"""recorder.py - records what passes between the machines of network.py."""
import mmap
import socket
import struct
import threading
import time

# Of <linux/if_packet.h> and <linux/if_ether.h>.
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
TPACKET_V3 = 2
TP_STATUS_USER = 1
PACKET_HEADER_BYTES = 48  # struct tpacket3_hdr


class Recorder:
    """Records every packet on the router's links, and notes the TCP ports to which connections are opened.

    The kernel writes packets to a ring in memory (packet_mmap.rst, TPACKET_V3), because the buffer of a socket is too
    small for a burst.  end() fails if a packet was lost nevertheless."""

    BLOCK_BYTES = 1 << 20
    BLOCKS = 32

    def __init__(self):
        self.line = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.line.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        ring = struct.pack("7I", self.BLOCK_BYTES, self.BLOCKS, 2048, self.BLOCK_BYTES // 2048 * self.BLOCKS,
                           20, 0, 0)  # A block is handed over after 20 ms.
        self.line.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
        self.ring = mmap.mmap(self.line.fileno(), self.BLOCK_BYTES * self.BLOCKS)
        self.bytes = bytearray()
        self.ports = set()
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        block = 0
        while True:
            is_ending = self.ending.is_set()
            start = block * self.BLOCK_BYTES
            status, count, offset = struct.unpack_from("3I", self.ring, start + 8)
            if status & TP_STATUS_USER:
                for _ in range(count):
                    step = self.note(start + offset)
                    offset += step
                struct.pack_into("I", self.ring, start + 8, 0)  # The kernel may write to the block again.
                block = (block + 1) % self.BLOCKS
            elif is_ending:
                return
            else:
                time.sleep(0.01)

    def note(self, at):
        """Notes the packet at an offset of the ring, and returns the distance to the next one."""
        step, captured = struct.unpack_from("I8xI", self.ring, at)
        network_offset, = struct.unpack_from("H", self.ring, at + 26)
        packet_type = self.ring[at + PACKET_HEADER_BYTES + 10]  # sll_pkttype of struct sockaddr_ll.
        packet = self.ring[at + network_offset:at + network_offset + captured]
        if packet_type != PACKET_OUTGOING and len(packet) >= 40 and packet[0] >> 4 == 4 and packet[9] == 6:
            tcp = packet[(packet[0] & 15) * 4:]
            if tcp[13] & 0x12 == 0x02:  # SYN without ACK
                self.ports.add(struct.unpack("!H", tcp[2:4])[0])
            self.bytes += tcp[(tcp[12] >> 4) * 4:]
        return step

    def end(self):
        time.sleep(0.2)
        self.ending.set()
        self.thread.join()
        _, lost, _ = struct.unpack("3I", self.line.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        self.line.close()
        if lost > 0:
            raise RuntimeError(f"{lost} packets were not recorded")
