! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! The library behind the sources, as the guide has it: what both it and libomp define is right
! on the host as well as in a region.
!
! RUN: %flang %s -o %t -lomptarget-flang
! RUN: %run2 %t | FileCheck %s
! REQUIRES: flang
!
! CHECK: host T device F

program main
  use omp_lib
  implicit none
  logical :: here, there
  here = omp_is_initial_device()
  !$omp target map(from: there)
  there = omp_is_initial_device()
  !$omp end target
  print '(a, l1, a, l1)', 'host ', here, ' device ', there
end program
