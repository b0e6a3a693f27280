/* faulty_device.h - a device whose n-th call fails, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAULTY_DEVICE_H
#define TDM_TESTS_FAULTY_DEVICE_H

#include "colocate/device/device.h"

/* Wraps `inner`, which it owns once it returns TDM_OK.  After tdm__device_faulty_arm() the n-th
 * call that can fail does fail, once; 0 disarms it. */
tdm_status tdm__device_faulty_open(struct tdm__device *inner, struct tdm__device **device_out);
void tdm__device_faulty_arm(struct tdm__device *faulty, uint64_t nth);

#endif
