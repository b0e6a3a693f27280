/* tandem.h - includes all public headers of Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include <tandem/actor.h>
#include <tandem/collective.h>
#include <tandem/config.h>
#include <tandem/dtype.h>
#include <tandem/error.h>
#include <tandem/job.h>
#include <tandem/outside_memory.h>
#include <tandem/placement.h>
#include <tandem/region.h>
#include <tandem/runtime.h>
#include <tandem/state.h>
#include <tandem/tensor.h>
#include <tandem/util.h>
#include <tandem/value.h>
#include <tandem/weights.h>

#endif
