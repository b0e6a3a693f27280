# SPDX-License-Identifier: Apache-2.0
"""ray.experimental: old names of Ray that frameworks still use."""
