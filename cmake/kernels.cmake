# The kernels for NVIDIA's GPUs: compiled where there is an nvcc, and then part of the library;
# without one nothing is added, and who asks for them is told.
# SPDX-License-Identifier: Apache-2.0
set(kernels_source ${CMAKE_SOURCE_DIR}/colocate/device/cuda/kernels.cu)
set(kernels_image ${CMAKE_BINARY_DIR}/kernels.fatbin)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernels_source})

find_program(NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NVCC AND ${kernels_source} IS_NEWER_THAN ${kernels_image})
  execute_process(COMMAND ${NVCC} -I${CMAKE_SOURCE_DIR} -fatbin
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
    -o ${kernels_image} ${kernels_source}
    RESULT_VARIABLE kernels_failed ERROR_VARIABLE kernels_error OUTPUT_QUIET)
  if(kernels_failed)
    file(REMOVE ${kernels_image})
    message(STATUS "no kernels for GPUs: ${NVCC}: ${kernels_error}")
  endif()
endif()
if(EXISTS ${kernels_image})
  set_source_files_properties(colocate/device/cuda/kernels.c PROPERTIES
    COMPILE_DEFINITIONS "TDM_CUDA_KERNELS_FILE=\"${kernels_image}\"" OBJECT_DEPENDS ${kernels_image})
endif()
