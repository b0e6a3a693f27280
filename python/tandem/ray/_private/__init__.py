# SPDX-License-Identifier: Apache-2.0
"""Private names of Ray that programs use."""
