{{- define "bmq.hookAnnotations" -}}
helm.sh/hook: {{ .when }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* A role for the Job and its binding: in one namespace, or with an empty one in all. */}}
{{- define "bmq.hookRole" -}}
{{- $kind := empty .namespace | ternary "ClusterRole" "Role" }}
{{- $name := printf "%s-%s" .root.Release.Namespace .name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "bmq.labels" .root | nindent 4 }}
  annotations: {{- include "bmq.hookAnnotations" (dict "when" .when "weight" 0) | nindent 4 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "bmq.labels" .root | nindent 4 }}
  annotations: {{- include "bmq.hookAnnotations" (dict "when" .when "weight" 0) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ default .name .account | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{/* A Job that calls bmq_operator.chart_hooks, and its account. */}}
{{- define "bmq.hookJob" -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "bmq.labels" .root | nindent 4 }}
  annotations: {{- include "bmq.hookAnnotations" (dict "when" .when "weight" 0) | nindent 4 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "bmq.labels" .root | nindent 4 }}
  annotations: {{- include "bmq.hookAnnotations" (dict "when" .when "weight" 1) | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 150
  template:
    metadata:
      labels:
        app.kubernetes.io/name: bmq-hook
        app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .name | quote }}
      enableServiceLinks: false
      securityContext: {{- include "bmq.podSecurity" .root | nindent 8 }}
      {{- include "bmq.placement" .root | nindent 6 }}
      containers:
        - name: hook
          image: {{ include "bmq.image" .root | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [python3, -m, bmq_operator.chart_hooks, {{ .verb }}]
          env: {{- .env | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          resources:
            requests: {cpu: 50m, memory: 128Mi}
          securityContext: {{- include "bmq.containerSecurity" .root | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: tmp
          emptyDir: {}
{{- end -}}
