/* tandem.c - the program tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/worker.h"
#include "cli/command.h"

int main(int argc, char **argv)
{
    static const struct tdm__command *const commands[] = {&tdm__command_run,
                                                          &tdm__command_plan,
                                                          &tdm__command_start,
                                                          &tdm__command_stop,
                                                          &tdm__command_status,
                                                          &tdm__command_top,
                                                          &tdm__command_list,
                                                          &tdm__command_kill,
                                                          &tdm__command_logs,
                                                          &tdm__command_timeline,
                                                          &tdm__command_job,
                                                          &tdm__command_info,
                                                          &tdm__command_python,
                                                          &tdm__command_env,
                                                          &tdm__command_ray,
                                                          &tdm__command_launch,
                                                          &tdm__command_redis_functions,
                                                          &tdm__command_version};

    /* This call does not return if the process is an actor's worker. */
    tdm__worker_run_if_one();
    return tdm__command_main(commands, sizeof(commands) / sizeof(commands[0]), argc, argv);
}
