// Package kubernetes is a part of the client that is no client.
package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/client-go/rest"
)

// Clientset has no cluster.
type Clientset struct{}

// NewForConfig fails.
func NewForConfig(*rest.Config) (*Clientset, error) { return nil, rest.ErrNoCluster }

// CoreV1 has the core's kinds.
func (*Clientset) CoreV1() Core { return Core{} }

// NetworkingV1 has those of networking.
func (*Clientset) NetworkingV1() Networking { return Networking{} }

// Core are the kinds of the core.
type Core struct{}

// RESTClient sends nothing.
func (Core) RESTClient() rest.Client { return rest.Client{} }

// Namespaces are none.
func (Core) Namespaces() Kind[corev1.Namespace, corev1.NamespaceList] {
	return Kind[corev1.Namespace, corev1.NamespaceList]{}
}

// Pods are none.
func (Core) Pods(string) Kind[corev1.Pod, corev1.PodList] {
	return Kind[corev1.Pod, corev1.PodList]{}
}

// Services are none.
func (Core) Services(string) Kind[corev1.Service, corev1.ServiceList] {
	return Kind[corev1.Service, corev1.ServiceList]{}
}

// Networking are the kinds of networking.
type Networking struct{}

// NetworkPolicies are none.
func (Networking) NetworkPolicies(string) Kind[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList] {
	return Kind[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList]{}
}

// Kind is one of objects T, of which L is a list.
type Kind[T, L any] struct{}

// Get fails, as the methods below.
func (Kind[T, L]) Get(context.Context, string, metav1.GetOptions) (*T, error) {
	return nil, rest.ErrNoCluster
}

// List fails.
func (Kind[T, L]) List(context.Context, metav1.ListOptions) (*L, error) {
	return nil, rest.ErrNoCluster
}

// Create fails.
func (Kind[T, L]) Create(context.Context, *T, metav1.CreateOptions) (*T, error) {
	return nil, rest.ErrNoCluster
}

// Update fails.
func (Kind[T, L]) Update(context.Context, *T, metav1.UpdateOptions) (*T, error) {
	return nil, rest.ErrNoCluster
}

// Delete fails.
func (Kind[T, L]) Delete(context.Context, string, metav1.DeleteOptions) error {
	return rest.ErrNoCluster
}
