/* incomplete_job_library.c - a job library whose trainer has no function "step". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/job.h>

static tdm_status open_rank(const struct tdm_rank_context *context, void **state_out)
{
    (void)context;
    *state_out = NULL;
    return TDM_OK;
}

static tdm_status declare_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                                  uint32_t *count_out)
{
    (void)state;
    (void)specs;
    *count_out = 0;
    return TDM_OK;
}

static tdm_status start_rank(void *state, void *const *addresses)
{
    (void)state;
    (void)addresses;
    return TDM_OK;
}

static tdm_status give_layout(void *state, const struct tdm_tensor_info **tensors_out,
                              uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                              uint32_t *slices_count_out)
{
    (void)state;
    *tensors_out = NULL;
    *tensors_count_out = 0;
    *slices_out = NULL;
    *slices_count_out = 0;
    return TDM_OK;
}

static const struct tdm_trainer_ops trainer = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                               .open = open_rank,
                                               .regions = declare_regions,
                                               .start = start_rank,
                                               .layout = give_layout};

TDM_JOB_LIBRARY(.name = "incomplete", .trainer = &trainer);
