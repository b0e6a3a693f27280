/* scheme_fixture.h - a small model, and an actor that receives it by any scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_SCHEME_FIXTURE_H
#define TDM_TESTS_SUPPORT_SCHEME_FIXTURE_H

#include <tandem/tandem.h>

enum { SCHEME_TENSORS = 4, SCHEME_TIMEOUT_MS = 30000 };

/* A model whose bytes follow from a seed. */
struct scheme_model {
    struct tdm_weights_tensor tensors[SCHEME_TENSORS];
};
void scheme_model_init(struct scheme_model *model);
void scheme_model_fini(struct scheme_model *model);
void scheme_model_fill(struct scheme_model *model, uint64_t seed);

/* The class "pupil", for every test that calls anything here.
 *
 *   open (s u u)   creates a receiver of that model; flags; shards_count: 0, or it takes the
 *                  part 1 of so many of the tensor "head"
 *   connect (s)    of that model
 *   receive (s i)  replies the version
 *   check (s u)    replies the version that it reads, if every byte is that of the seed
 *   attached (s)   replies the bytes attached to the version that it reads
 *   told (s)       replies how often on_version was called, and with what last
 *   close (s)
 *   relay (s s u)  opens a sender of the second model that relays the first, to so many
 *   send (s)       connects it, or sends, replies the version */
enum pupil_flags { PUPIL_KEEPS = 1, PUPIL_BACKGROUND = 2, PUPIL_PARTIAL = 4 };

tdm_actor *scheme_pupil(tdm_runtime *runtime, const char *model, uint64_t flags);
tdm_ref *scheme_call(tdm_actor *pupil, const char *method, const char *model);
tdm_ref *scheme_receive(tdm_actor *pupil, const char *model, int64_t timeout_ms);
/* Waits for the result and releases it. Stores the version in *version_out, which may be NULL. */
tdm_status scheme_end(tdm_ref *ref, uint64_t *version_out);
/* Returns the status of a check of version and bytes. */
tdm_status scheme_check(tdm_actor *pupil, const char *model, uint64_t seed, uint64_t version);
/* Returns TDM_OK if these bytes are attached to the version that the pupil reads. */
tdm_status scheme_check_attached(tdm_actor *pupil, const char *model, struct tdm_bytes expected);

tdm_weights_sender *scheme_sender(tdm_runtime *runtime, const char *name,
                                  enum tdm_weights_scheme scheme, const struct scheme_model *model,
                                  uint32_t receivers_count);

#endif
