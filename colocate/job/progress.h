/* progress.h - one line that tells how a job is getting on. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_PROGRESS_H
#define TDM_COLOCATE_JOB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tandem/job.h>

/* What a step measured; NAN for what it did not. */
struct tdm__progress_step {
    bool supervised; /* a warm-up step */
    uint32_t step;   /* 1 … steps_count */
    uint32_t steps_count;
    double reward; /* mean of the step's samples */
    double kl;     /* engine against trainer, of the sampled tokens */
    double rollout_ms;
    double train_ms;
    double update_ms;
    uint64_t version; /* committed by it; 0: none yet */
    double off_on_ms; /* spent pausing and resuming */
    const struct tdm_metrics
        *metrics; /* Borrowed from the trainer's reply; NULL without metrics. */
};

enum { TDM__PROGRESS_BYTES = 2048 };

/* The line, at most `columns` wide: where it does not fit, the bar is shorter and fields are
 * left out from the end; a narrow line has no bar.  0 columns: no bar, no limit,
 * and the trainer's own metrics at the end. */
void tdm__progress_text(const struct tdm__progress_step *step, uint32_t columns,
                        char text[TDM__PROGRESS_BYTES]);
/* One JSON object without a newline. */
void tdm__progress_json(const struct tdm__progress_step *step, char text[TDM__PROGRESS_BYTES]);

enum tdm__progress_mode {
    TDM__PROGRESS_LIVE,  /* a terminal: one line, drawn over */
    TDM__PROGRESS_PLAIN, /* a line a step */
    TDM__PROGRESS_JSON   /* an object a line */
};

struct tdm__progress {
    FILE *stream; /* borrowed */
    enum tdm__progress_mode mode;
    bool drawn; /* the cursor stands behind a live line */
};

void tdm__progress_show(struct tdm__progress *progress, const struct tdm__progress_step *step);
/* A line of its own, above the live one; in JSON mode {"note": text}. */
__attribute__((format(printf, 2, 3))) void tdm__progress_note(struct tdm__progress *progress,
                                                              const char *format, ...);
/* Leaves the last live line standing. */
void tdm__progress_end(struct tdm__progress *progress);

#endif
