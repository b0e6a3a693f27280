/* progress.h - formats and prints the progress of a job, one line for each step. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_PROGRESS_H
#define TDM_COLOCATE_JOB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tandem/job.h>

/* The measurements of one training step. A number that was not measured is NAN. */
struct tdm__progress_step {
    /* True for a warm-up step, false for a reinforcement-learning step. */
    bool supervised;
    /* Number of the step, 1 … steps_count. */
    uint32_t step;
    /* Number of steps of this kind in the job. */
    uint32_t steps_count;
    /* Share of the step's samples whose reward is 1. */
    double reward;
    /* Divergence of the engine's probabilities from the trainer's, over the sampled tokens. */
    double kl;
    /* Milliseconds from the first request to the last completion. */
    double rollout_ms;
    /* Milliseconds of the training step on all trainer ranks. */
    double train_ms;
    /* Milliseconds of the weight update, the switch to the new version included. */
    double update_ms;
    /* Weight version that the step committed; 0 if it does not exist yet. */
    uint64_t version;
    /* Milliseconds that the step spent pausing and resuming memory. */
    double off_on_ms;
    /* Borrowed metrics from the trainer's reply; NULL without metrics. */
    const struct tdm_metrics *metrics;
};

/* Size in bytes of the buffer for one progress line, its NUL included. */
enum { TDM__PROGRESS_BYTES = 2048 };

/* Formats a step as text of at most `columns` columns. If the line is too long, the bar gets
 * shorter and the last fields are omitted; a narrow line has no bar. With 0 columns there is no
 * limit and no bar, and the trainer's own metrics are appended. */
void tdm__progress_text(const struct tdm__progress_step *step, uint32_t columns,
                        char text[TDM__PROGRESS_BYTES]);
/* Formats a step as one JSON object without a newline. */
void tdm__progress_json(const struct tdm__progress_step *step, char text[TDM__PROGRESS_BYTES]);

/* Format of the progress output. */
enum tdm__progress_mode {
    /* One line on a terminal that each step overwrites. */
    TDM__PROGRESS_LIVE,
    /* One line of text for each step. */
    TDM__PROGRESS_PLAIN,
    /* One JSON object for each step, each on its own line. */
    TDM__PROGRESS_JSON
};

/* Where and how progress is printed. Used by the thread of the job only. */
struct tdm__progress {
    /* Borrowed output stream. */
    FILE *stream;
    /* Format of the output. */
    enum tdm__progress_mode mode;
    /* True while the cursor is at the end of a live line that has no newline yet. */
    bool drawn;
};

/* Prints the progress of a step in the mode of `progress`. */
void tdm__progress_show(struct tdm__progress *progress, const struct tdm__progress_step *step);
/* Prints a message on a line above the live line; in JSON mode as {"note": text}. */
__attribute__((format(printf, 2, 3))) void tdm__progress_note(struct tdm__progress *progress,
                                                              const char *format, ...);
/* Ends the live line with a newline, so that later output does not overwrite it. */
void tdm__progress_end(struct tdm__progress *progress);

#endif
