/* death_report.c - the text that describes how an actor died. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/death_report.h"

#include "actors/daemon/worker_logs.h"
#include "runtime/process/spawn.h"
#include "runtime/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Appends the first line of a death report: "actor A died: node N, pid P, cause". */
static void death_add_first_line(const struct tdm__death_report *death, struct tdm__text *text)
{
    char status_text[64];

    tdm__text_add(text, "actor %s died: node %s, pid %lld, ", death->label, death->node_name,
                  (long long)death->pid);
    if (death->failure[0] != '\0') {
        tdm__text_add(text, "%s", death->failure);
    } else {
        tdm__text_add(text, "%s",
                      tdm__wait_status_text(death->wait_status, status_text, sizeof(status_text)));
    }
}

/* If a SIGKILL ended the worker, appends what the kernel's counts say about a lack of memory. */
static void death_add_memory_verdict(const struct tdm__death_report *death, struct tdm__text *text)
{
    enum tdm__oom_verdict verdict = tdm__oom_check(death->oom);

    if (!WIFSIGNALED(death->wait_status) || WTERMSIG(death->wait_status) != SIGKILL) {
        return;
    }
    switch (verdict) {
    case TDM__OOM_YES:
        tdm__text_add(text, "\nthe kernel killed it: out of memory (%s counts the kill)",
                      death->oom->cgroup_file);
        break;
    case TDM__OOM_PERHAPS:
        tdm__text_add(text, "\nmaybe out of memory: the kernel has killed a process of this "
                            "machine for that");
        break;
    case TDM__OOM_NO:
        tdm__text_add(text, "\nnot out of memory: the kernel counts no such kill; who sent the "
                            "signal is not known");
        break;
    case TDM__OOM_UNKNOWN:
        tdm__text_add(text, "\nwhether it was out of memory is not known: the kernel's counts "
                            "cannot be read here");
        break;
    }
}

/* Appends " | " and one line of the worker's output. Control characters, such as those for colours
 * and progress bars, become '?'. */
static void text_add_output_line(struct tdm__text *text, const char *line, size_t line_bytes)
{
    tdm__text_add(text, "\n  | ");
    for (size_t i = 0; i < line_bytes; i++) {
        unsigned char letter = (unsigned char)line[i];

        tdm__text_add(text, "%c", letter < ' ' && letter != '\t' ? '?' : (int)letter);
    }
}

/* Appends the last lines of the dead worker's stderr to the report, as many as have space. */
static void death_add_last_lines(const struct tdm__death_report *death, struct tdm__text *text)
{
    char words[TDM__DEATH_OUTPUT_BYTES - TDM__DEATH_OUTPUT_LINES * 5];
    const char *line = words;
    size_t space = text->size_bytes - text->length;
    size_t marks = (size_t)TDM__DEATH_OUTPUT_LINES * 5; /* Bytes of "\n  | " before each line. */
    size_t left;

    if (space <= marks + 1) {
        return;
    }
    space = space - marks < sizeof(words) ? space - marks : sizeof(words);
    left = tdm__log_source_last_lines(death->output, TDM__DEATH_OUTPUT_LINES, words, space);

    while (left > 0) {
        const char *end = memchr(line, '\n', left);
        size_t line_bytes = end == NULL ? left : (size_t)(end - line);

        text_add_output_line(text, line, line_bytes);
        line_bytes += end == NULL ? 0 : 1;
        line += line_bytes;
        left -= line_bytes;
    }
}

void tdm__death_report_write(const struct tdm__death_report *death,
                             char text[TDM__DEATH_REPORT_BYTES])
{
    struct tdm__text words = tdm__text_init(text, TDM__DEATH_REPORT_BYTES);

    death_add_first_line(death, &words);
    if (death->was_requested) {
        (void)tdm__oom_check(death->oom);
        return;
    }
    death_add_memory_verdict(death, &words);
    if (death->output != NULL) {
        death_add_last_lines(death, &words);
    }
}
