! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! A module's variables and procedures with `declare target`, called from regions of flang, and
! what regions print: it comes before what the program prints next.
!
! RUN: %flang %s -o %t
! RUN: %run2 %t | FileCheck %s
! REQUIRES: flang
!
! CHECK:      device 0 prints 42
! CHECK-NEXT: then the program
! CHECK:      result: right

module state
  implicit none
  integer :: counter = 5
  real(8) :: table(100) = 1
  integer, allocatable :: later(:)
  !$omp declare target enter(counter, table, later)
  integer :: linked(4) = 3
  !$omp declare target link(linked)
contains
  subroutine advance(by)
    !$omp declare target
    integer, intent(in) :: by
    counter = counter + by
    table(counter) = table(counter) + by
  end subroutine

  recursive integer function factorial(n) result(f)
    !$omp declare target
    integer, intent(in) :: n
    f = 1
    if (n > 1) f = n*factorial(n - 1)
  end function

  elemental real(8) function square(x)
    !$omp declare target
    real(8), intent(in) :: x
    square = x*x
  end function
end module

program main
  use omp_lib
  use state
  implicit none
  integer :: d, there, answer
  real(8) :: squares(5)
  do d = 0, omp_get_num_devices() - 1
    ! Each device has its own, and keeps it from region to region.
    counter = 5
    table = 1
    !$omp target update to(counter, table) device(d)
    !$omp target device(d)
    call advance(20)
    call advance(30)
    !$omp end target
    call check(counter == 5 .and. all(table == 1), 'the host keeps its own')
    !$omp target update from(counter, table) device(d)
    call check(counter == 55 .and. sum(table) == 150 .and. table(55) == 31, 'variables of a module')

    !$omp target map(from: there, squares) device(d)
    there = factorial(10)
    squares = square([1d0, 2d0, 3d0, 4d0, 5d0])
    !$omp end target
    call check(there == 3628800 .and. sum(squares) == 55, 'procedures of a module')

    linked = 3
    !$omp target map(tofrom: linked) device(d)
    linked = linked*2
    !$omp end target
    call check(all(linked == 6), 'link')

    allocate (later(50))
    later = 8
    !$omp target enter data map(always, to: later) device(d)
    !$omp target map(from: there) device(d)
    there = sum(later)
    !$omp end target
    !$omp target exit data map(delete: later) device(d)
    deallocate (later)
    call check(there == 400, 'allocated later')
  end do

  answer = 42
  !$omp target map(to: answer) device(0)
  print '(a, i0)', 'device 0 prints ', answer
  !$omp end target
  print '(a)', 'then the program'
  print '(a)', 'result: right'
contains
  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (.not. right) then
      print '(2a)', 'wrong: ', what
      stop 1
    end if
  end subroutine
end program
