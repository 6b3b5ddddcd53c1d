# BARG_CUDA: each .cu file becomes PTX, machine code (cubin) and ptxas' report for every architecture in
# ${BARG_CUDA_DIR}, and one fatbin, which kernel_images.cpp takes into the program. No CUDA library is linked: the driver
# is opened at run time. Nothing here asks CMake for a CUDA toolchain; nvcc, its ptxas and fatbinary are enough.

find_program(BARG_NVCC NAMES $ENV{CUDACXX} nvcc HINTS /usr/local/cuda/bin DOC "CUDA's compiler")
set(cuda_default OFF)
if(BARG_NVCC AND NOT BARG_SANITIZE AND NOT BARG_FUZZ)  # those look at the host's code
  set(cuda_default ON)
endif()
option(BARG_CUDA "Put the CUDA kernels into the program (needs nvcc)" ${cuda_default})

if(NOT BARG_CUDA)
  if(BARG_NVCC)
    message(STATUS "BARG_CUDA=OFF: the program computes on the CPU only (nvcc is there: ${BARG_NVCC})")
  else()
    message(STATUS "BARG_CUDA=OFF: the program computes on the CPU only (no nvcc on PATH, in CUDACXX or in /usr/local/cuda/bin)")
  endif()
  return()
endif()

if(NOT BARG_NVCC)
  message(FATAL_ERROR "BARG_CUDA=ON needs nvcc, which is not on PATH: add CUDA's bin directory to PATH, set CUDACXX, "
                      "or configure with -DBARG_CUDA=OFF.")
endif()
get_filename_component(nvcc_dir "${BARG_NVCC}" REALPATH)
get_filename_component(nvcc_dir "${nvcc_dir}" DIRECTORY)
find_program(BARG_FATBINARY fatbinary HINTS ${nvcc_dir} /usr/local/cuda/bin DOC "CUDA's packer of machine code")
if(NOT BARG_FATBINARY)
  message(FATAL_ERROR "BARG_CUDA=ON needs fatbinary, which belongs beside ${BARG_NVCC}; reinstall CUDA's compiler, "
                      "or configure with -DBARG_CUDA=OFF.")
endif()
execute_process(COMMAND ${BARG_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
string(REGEX REPLACE ".*release ([0-9.]+).*" "\\1" nvcc_version "${nvcc_version}")
execute_process(COMMAND ${BARG_NVCC} --list-gpu-code OUTPUT_VARIABLE nvcc_archs ERROR_QUIET)
string(REGEX MATCHALL "[0-9]+" nvcc_archs "${nvcc_archs}")
if(NOT nvcc_archs)
  message(FATAL_ERROR "${BARG_NVCC} does not say which architectures it knows (--list-gpu-code): CUDA 12.0 or later is needed.")
endif()

# What releases have, or as much of it as this nvcc knows; and PTX of the newest, which drivers compile for what comes later.
if(NOT DEFINED BARG_CUDA_ARCHS)
  set(known "")
  foreach(arch 80 90 100 120)
    if(arch IN_LIST nvcc_archs)
      list(APPEND known ${arch})
      set(newest ${arch})
    endif()
  endforeach()
  set(BARG_CUDA_ARCHS "${known};${newest}-ptx" CACHE STRING
      "Compute capabilities that kernels are compiled for, as 80;90; N-ptx: PTX, for newer ones too")
endif()
foreach(arch ${BARG_CUDA_ARCHS})
  string(REGEX REPLACE "-ptx$" "" number "${arch}")
  if(NOT number IN_LIST nvcc_archs OR number LESS 80)
    string(REPLACE ";" ", " text "${nvcc_archs}")
    message(FATAL_ERROR "BARG_CUDA_ARCHS has ${arch}: it must be at least 80, and nvcc ${nvcc_version} knows ${text}.")
  endif()
endforeach()
string(REPLACE ";" ", " cuda_archs_text "${BARG_CUDA_ARCHS}")
message(STATUS "BARG_CUDA=ON: kernels for ${cuda_archs_text} (nvcc ${nvcc_version}, ${BARG_NVCC})")

set(BARG_CUDA_DIR ${CMAKE_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${BARG_CUDA_DIR})
# The numerics contract: no contraction, every FMA is written out.
set(nvcc_flags -std=c++20 -O3 -fmad=false)
set(nvcc_includes -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/kernels)
# LZ4, which every driver reads.
set(fatbinary_flags -64 "--cmdline= --fmad false " --compress-all)
if(nvcc_version VERSION_GREATER_EQUAL 12.4)
  list(APPEND fatbinary_flags --compress-mode=speed)
endif()

# ${BARG_CUDA_DIR}/STEM.ptx of a source.
function(cuda_ptx source arch stem)
  set(out ${BARG_CUDA_DIR}/${stem}.ptx)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${BARG_NVCC} -ptx -arch=compute_${arch} ${nvcc_flags} ${nvcc_includes} -MD -MT ${out} -MF ${out}.d -o ${out} ${source}
    DEPENDS ${source}
    DEPFILE ${out}.d
    COMMENT "Compiling ${stem}.ptx"
    VERBATIM)
endfunction()

# ${BARG_CUDA_DIR}/STEM.cubin of STEM.ptx, and what ptxas says of it in STEM.txt.
function(cuda_cubin arch stem)
  set(out ${BARG_CUDA_DIR}/${stem})
  add_custom_command(
    OUTPUT ${out}.cubin ${out}.txt
    COMMAND sh -c "\"$@\" >\"$0\" 2>&1 || { cat \"$0\"; exit 1; }" ${out}.txt
            ${BARG_NVCC} -cubin -arch=sm_${arch} ${nvcc_flags} -Xptxas -v -o ${out}.cubin ${out}.ptx
    DEPENDS ${out}.ptx
    COMMENT "Assembling ${stem}.cubin"
    VERBATIM)
endfunction()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
set(cuda_fatbins "")
set(cuda_image_rows "")
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  if(name MATCHES "_check$")  # static assertions against CUDA's headers, no kernels
    list(GET nvcc_archs -1 arch)
    cuda_ptx(${source} ${arch} ${name})
    list(APPEND cuda_checks ${BARG_CUDA_DIR}/${name}.ptx)
    continue()
  endif()
  set(pieces "")
  set(inputs "")
  set(numbers ${BARG_CUDA_ARCHS})
  list(TRANSFORM numbers REPLACE "-ptx$" "")
  list(REMOVE_DUPLICATES numbers)
  foreach(number ${numbers})
    cuda_ptx(${source} ${number} ${name}.${number})
  endforeach()
  foreach(arch ${BARG_CUDA_ARCHS})
    if(arch MATCHES "^([0-9]+)-ptx$")
      set(file ${BARG_CUDA_DIR}/${name}.${CMAKE_MATCH_1}.ptx)
      list(APPEND pieces "--image3=kind=ptx,sm=${CMAKE_MATCH_1},file=${file}")
    else()
      cuda_cubin(${arch} ${name}.${arch})
      set(file ${BARG_CUDA_DIR}/${name}.${arch}.cubin)
      list(APPEND pieces "--image3=kind=elf,sm=${arch},file=${file}")
    endif()
    list(APPEND inputs ${file})
  endforeach()
  set(fatbin ${BARG_CUDA_DIR}/${name}.fatbin)
  add_custom_command(OUTPUT ${fatbin} COMMAND ${BARG_FATBINARY} ${fatbinary_flags} --create=${fatbin} ${pieces}
                     DEPENDS ${inputs} COMMENT "Packing ${name}.fatbin" VERBATIM)
  list(APPEND cuda_fatbins ${fatbin})
  string(APPEND cuda_image_rows "BARG_IMAGE(${name}, \"${fatbin}\")\n")
endforeach()

file(GENERATE OUTPUT ${BARG_CUDA_DIR}/images.inc CONTENT "${cuda_image_rows}")
add_custom_target(barg_cuda_images DEPENDS ${cuda_fatbins} ${cuda_checks})
add_dependencies(barg_device barg_cuda_images)
set_source_files_properties(
  ${CMAKE_SOURCE_DIR}/kernels/cuda/kernel_images.cpp PROPERTIES
  COMPILE_DEFINITIONS "BARG_KERNEL_IMAGES=\"${BARG_CUDA_DIR}/images.inc\";BARG_KERNEL_ARCHS=\"${cuda_archs_text}\""
  OBJECT_DEPENDS "${cuda_fatbins};${BARG_CUDA_DIR}/images.inc")
