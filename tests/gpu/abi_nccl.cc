/* abi_nccl.cc - nccl_api.h says what NCCL's own nccl.h says; a difference does not compile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <nccl.h>

#include "tests/gpu/abi.h"

/* Macros of nccl.h whose names nccl_api.h uses for its own. */
enum { VENDORS_UNIQUE_ID_BYTES = NCCL_UNIQUE_ID_BYTES };
#undef NCCL_UNIQUE_ID_BYTES

namespace own {
#include "colocate/comm/nccl/nccl_api.h"

#define X(name, arguments)                                                                         \
    static_assert(abi::same_function<decltype(&::name), int(*) arguments>::value, #name);
NCCL_CALLS(X)
#ifdef NCCL_SUSPEND_MEM
NCCL_OPTIONAL_CALLS(X)
#endif
#undef X
#define X(name, arguments)                                                                         \
    static_assert(abi::same_function<decltype(&::name), const char *(*)arguments>::value, #name);
NCCL_TEXT_CALLS(X)
#undef X
} // namespace own

#define SAME(name, vendors) static_assert((int)own::name == (int)(vendors), #name)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_UNIQUE_ID_BYTES, VENDORS_UNIQUE_ID_BYTES);
#ifdef NCCL_SUSPEND_MEM
SAME(NCCL_SUSPEND_MEMORY, NCCL_SUSPEND_MEM);
#endif

static_assert(sizeof(own::nccl_unique_id) == sizeof(ncclUniqueId), "nccl_unique_id");
SAME_FIELD(own::nccl_config, size, ncclConfig_t, size);
SAME_FIELD(own::nccl_config, magic, ncclConfig_t, magic);
SAME_FIELD(own::nccl_config, version, ncclConfig_t, version);
SAME_FIELD(own::nccl_config, blocking, ncclConfig_t, blocking);
/* The library takes as many bytes as `size` says and fills in the rest. */
static_assert(sizeof(own::nccl_config) <= sizeof(ncclConfig_t), "nccl_config");
constexpr ncclConfig_t vendors_default = NCCL_CONFIG_INITIALIZER;
static_assert(vendors_default.magic == NCCL_CONFIG_MAGIC, "NCCL_CONFIG_MAGIC");
static_assert(NCCL_CONFIG_VERSION == NCCL_VERSION(2, 14, 0), "NCCL_CONFIG_VERSION");
