/* region.h - device memory that can be taken away and given back at the same address. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_REGION_H
#define TANDEM_REGION_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A region is a range of virtual addresses that stays put for its whole life, backed by
 * physical blocks that come and go.  Touching a paused region is a fault (SIGSEGV), by design.
 * All functions here: one thread at a time, in an actor with several threads too. */
typedef struct tdm_region tdm_region;

enum tdm_region_policy {
    TDM_REGION_KEEP, /* pause copies the contents to host memory, resume brings them back */
    TDM_REGION_DROP  /* pause forgets them; after resume they are undefined */
};

enum { TDM_REGION_TAG_BYTES_MAX = 32 };

struct tdm_region_options {
    const char
        *tag; /* what the memory is for: "weights", "kv_cache", "optimizer", …; 1 to 31 bytes */
    size_t size_bytes; /* rounded up to whole blocks of 2 MiB */
    enum tdm_region_policy policy;
    uint32_t gpu; /* which of this actor's GPUs: 0 for the first */
    int paused;   /* 1: starts paused, so that creating it needs no device memory; its first
                     contents are undefined then, as those of a new region are */
};

/* Reserves the addresses and, unless `paused`, the memory.  TDM_E_DEVICE_FULL names the tag,
 * the bytes wanted, the bytes free and who holds the rest. */
TDM_API tdm_status tdm_region_create(tdm_runtime *runtime,
                                     const struct tdm_region_options *options,
                                     tdm_region **region_out);
/* Frees memory and addresses.  NULL is allowed. */
TDM_API void tdm_region_destroy(tdm_region *region);

/* Never changes.  Valid to touch only while resident. */
TDM_API void *tdm_region_address(const tdm_region *region);
TDM_API size_t tdm_region_size(const tdm_region *region);
TDM_API const char *tdm_region_tag(const tdm_region *region);
TDM_API int tdm_region_is_resident(const tdm_region *region);

/* Where the bytes can be read now: the address itself while resident, the host copy while a
 * KEEP region is paused, NULL while a DROP region is. */
TDM_API const void *tdm_region_contents(const tdm_region *region);

/* Gives the physical memory back to the device; when this returns, it is free for others, but
 * for what another process has mapped of it: that stays charged, and is waited for, until that
 * process has unmapped it or died.  TDM_E_STATE if paused already. */
TDM_API tdm_status tdm_region_pause(tdm_region *region);

/* Takes memory again, at the same address.  All or nothing: on any failure the region is paused
 * as before, with its contents, and the call can be repeated.  Waits up to `timeout_ms` for
 * another tenant's memory that is on its way out; what can never fit is refused at once
 * (TDM_E_DEVICE_FULL, with both tenants' numbers).  TDM_E_STATE if resident already. */
TDM_API tdm_status tdm_region_resume(tdm_region *region, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
