# SPDX-License-Identifier: Apache-2.0
"""ray._private.runtime_env.constants."""

RAY_JOB_CONFIG_JSON_ENV_VAR = "RAY_JOB_CONFIG_JSON_ENV_VAR"
