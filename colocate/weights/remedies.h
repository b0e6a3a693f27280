/* remedies.h - sentences with which several error messages about weights end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_REMEDIES_H
#define TDM_COLOCATE_WEIGHTS_REMEDIES_H

/* For a state that no user can cause and that processes of one build cannot reach. */
#define TDM__REMEDY_DEFECT "This is a defect of Tandem: report it with this message"

/* For bytes of another process that this one cannot read, although both use the same protocol. */
#define TDM__REMEDY_SAME_TANDEM                                                                    \
    "Install the same Tandem for both processes, or report it as a defect of Tandem"

/* For bytes that were changed on their way or in memory. */
#define TDM__REMEDY_SEND_AGAIN                                                                     \
    "Start the update again; if it fails again, check the memory and network of the machines"

#endif
