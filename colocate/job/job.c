/* job.c - the controller: runs a job from its first step to its last. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/job.h"

#include "runtime/error.h"

tdm_status tdm__job_run(const struct tdm__job_spec *spec,
                        const struct tdm__job_run_options *options)
{
    (void)options;
    return tdm__fail(TDM_E_UNSUPPORTED, "job %s cannot be run yet", spec->name);
}
