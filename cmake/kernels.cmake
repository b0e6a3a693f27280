# Kernels for NVIDIA's GPUs: compiled where there is an nvcc, and then part of a C source; without
# one nothing is added, and who asks for them is told.  -DNVCC=OFF builds as if there were no nvcc.
# SPDX-License-Identifier: Apache-2.0
find_program(NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)

# tandem_kernels(<source.cu> <image> <user.c> <definition> [headers …]): user.c is compiled with
# the definition, the image's path, and takes it in.
function(tandem_kernels source image user definition)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source} ${ARGN})
  set(stale FALSE)
  foreach(input ${source} ${ARGN})
    if(${input} IS_NEWER_THAN ${image})
      set(stale TRUE)
    endif()
  endforeach()
  if(NVCC AND stale)
    execute_process(COMMAND ${NVCC} -I${CMAKE_SOURCE_DIR} -fatbin
      -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
      -o ${image} ${source}
      RESULT_VARIABLE failed ERROR_VARIABLE error OUTPUT_QUIET)
    if(failed)
      file(REMOVE ${image})
      message(STATUS "no kernels for GPUs: ${NVCC}: ${error}")
    endif()
  endif()
  if(EXISTS ${image})
    set_source_files_properties(${user} PROPERTIES
      COMPILE_DEFINITIONS "${definition}=\"${image}\"" OBJECT_DEPENDS ${image})
  endif()
endfunction()

tandem_kernels(${CMAKE_SOURCE_DIR}/colocate/device/cuda/kernels.cu ${CMAKE_BINARY_DIR}/kernels.fatbin
  colocate/device/cuda/kernels.c TDM_CUDA_KERNELS_FILE)
