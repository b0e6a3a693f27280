# SPDX-License-Identifier: Apache-2.0
"""Tandem for Python: tandem.ray runs programs that are written against Ray's actor API."""
