/* http_fuzz.c - any bytes as HTTP requests: each complete request gets a response. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/http/http.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 12 };

static void answer(void *arg, struct tdm__http_request *request, const char *path)
{
    (void)arg;
    tdm__http_reply(request, strcmp(path, "/metrics") == 0 ? 200 : 404, "text/plain", "x\n", 2);
}

static void settle(struct tdm__loop *loop)
{
    for (int i = 0; i < ROUNDS; i++) {
        (void)tdm__loop_run(loop, NULL, NULL, tdm__clock_ms());
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sockaddr_un there = {.sun_family = AF_UNIX};
    static struct tdm__loop *loop;
    static struct tdm__http_server *http;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    TDM_ASSERT(fd >= 0);
    if (http == NULL) {
        char address[96];

        (void)snprintf(there.sun_path, sizeof(there.sun_path), "/tmp/tandem-http-fuzz.%d",
                       (int)getpid());
        (void)snprintf(address, sizeof(address), "unix:%.80s", there.sun_path);
        TDM_ASSERT(tdm__loop_create(&loop) == TDM_OK);
        TDM_ASSERT(tdm__http_open(loop, address, answer, NULL, &http) == TDM_OK);
    }
    TDM_ASSERT(connect(fd, (struct sockaddr *)&there, sizeof(there)) == 0);
    if (send(fd, data, size > 60000 ? 60000 : size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
        settle(loop);
    }
    (void)close(fd);
    settle(loop);
    return 0;
}
