# SPDX-License-Identifier: Apache-2.0
"""ray._private.services."""
from tandem.ray._runtime import node_ip_address


def get_node_ip_address(address="8.8.8.8:53"):
    """Return the address of this machine in its network."""
    return node_ip_address()
