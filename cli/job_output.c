/* job_output.c - prints the output of a submitted job, until the job ends. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon has the output in a file and serves pieces of it. The command reads piece after piece
 * from an offset. At the end of the file it waits, longer each time without new output, from
 * WAIT_MIN_MS to WAIT_MAX_MS, until the reply says that the job has ended. */
#include "cli/job_output.h"

#include "runtime/error.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

enum {
    PIECE_BYTES = 256 << 10, /* Largest number of bytes of output that one request reads. */
    WAIT_MIN_MS = 10,        /* Shortest time between two requests at the end of the output. */
    WAIT_MAX_MS = 200        /* Longest time between two requests at the end of the output. */
};

/* True once Ctrl-C has been pressed. */
static volatile sig_atomic_t was_interrupted;

/* Handles SIGINT. */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

void cli_job_output_catch_interrupt(void)
{
    const struct sigaction action = {.sa_handler = on_interrupt};

    (void)sigaction(SIGINT, &action, NULL);
}

/* Position in the output of a job. */
struct position {
    uint64_t offset; /* Number of bytes of output that were printed or skipped. */
    bool at_end;     /* Whether the last piece reached the end of the output. */
    bool has_news;   /* Whether the last piece had output. */
};

/* Reads and prints the next piece of a job's output. */
static tdm_status print_piece(struct cli_job_client *client, const char *submission_id,
                              struct position *position, struct cli_job_end *end_out)
{
    const struct tdm__job_read_message request = {
        .submission_id = submission_id, .offset = position->offset, .bytes_max = PIECE_BYTES};
    struct tdm__job_output_message piece;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(cli_job_client_call(client, "job.read", tdm__job_read_table(), &request, &document));
    status = tdm__job_output_decode(tdm_document_root(document), &piece);
    if (status == TDM_OK) {
        cli_job_end_copy(&piece.job, end_out);
        if (piece.offset > position->offset && piece.text.size_bytes > 0) {
            (void)fprintf(stderr,
                          "tandem: warning: the node has deleted the first %llu bytes of the "
                          "remaining output\n",
                          (unsigned long long)(piece.offset - position->offset));
        }
        (void)fwrite(piece.text.data, 1, piece.text.size_bytes, stdout);
        position->offset = piece.offset + piece.text.size_bytes;
        position->has_news = piece.text.size_bytes > 0;
        position->at_end = position->offset >= piece.file_bytes;
    }
    tdm_document_destroy(document);
    return status;
}

tdm_status cli_job_output_print(struct cli_job_client *client, const char *submission_id,
                                bool follow, struct cli_job_end *end_out)
{
    struct position position = {.offset = 0};
    int wait_ms = WAIT_MIN_MS;

    for (;;) {
        if (was_interrupted != 0) {
            return tdm__fail(TDM_E_CANCELED, "interrupted");
        }
        TDM_TRY(print_piece(client, submission_id, &position, end_out));
        if (fflush(stdout) != 0 || ferror(stdout) != 0) {
            return tdm__fail_errno(errno == 0 ? EIO : errno, "writing to stdout failed");
        }
        if (position.at_end && (!follow || end_out->has_ended)) {
            return TDM_OK;
        }
        if (position.at_end) {
            wait_ms = position.has_news ? WAIT_MIN_MS : wait_ms * 2;
            wait_ms = wait_ms > WAIT_MAX_MS ? WAIT_MAX_MS : wait_ms;
            (void)poll(NULL, 0, wait_ms);
        }
    }
}
